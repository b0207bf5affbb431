"""Writes one after another through this member's own etcd for a time, on one kept connection: CA
CLIENT SECONDS PREFIX. Prints as JSON the seconds that each took and what went wrong.
"""

import base64
import http.client
import json
import ssl
import sys
import time

TIMEOUT_SECONDS = 30

ca, client, seconds, prefix = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(client)
took: list[float] = []
failures: list[str] = []
connection = http.client.HTTPSConnection("::1", 2379, timeout=TIMEOUT_SECONDS, context=context)
end = time.monotonic() + float(seconds)
while time.monotonic() < end:
    key = base64.b64encode(f"{prefix}{len(took)}".encode()).decode()
    begun = time.monotonic()
    try:
        connection.request("POST", "/v3/kv/put", body=json.dumps({"key": key, "value": key}))
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException) as error:
        failures.append(f"{type(error).__name__}: {error}")
        connection.close()
        continue
    if answer.status == http.client.OK:
        took.append(time.monotonic() - begun)
    else:
        failures.append(said.decode("utf-8", "replace"))
print(json.dumps({"took": took, "failures": failures}))
