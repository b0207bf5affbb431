"""Fifty fresh TLS connections a second to this member's client port, a request on each, until a
file appears: CA CLIENT STOP. Prints how many there were and what went wrong.
"""

import http.client
import json
import ssl
import sys
import time
from pathlib import Path

PAUSE_SECONDS = 1 / 50
LIMIT_SECONDS = 60  # a refusal is told at once; so slow is none

ca, client, stop = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(client)
made, failures = 0, []
begun = due = time.monotonic()
print("begun", flush=True)
while not Path(stop).exists():
    connection = http.client.HTTPSConnection("::1", 2379, timeout=LIMIT_SECONDS, context=context)
    try:
        connection.request("GET", "/version")
        status = connection.getresponse().status
        if status != http.client.OK:
            failures.append(f"status {status}")
    except (OSError, http.client.HTTPException) as error:
        failures.append(f"{type(error).__name__}: {error}")
    finally:
        connection.close()
    made += 1
    due = max(due + PAUSE_SECONDS, time.monotonic() - 1)
    time.sleep(max(0.0, due - time.monotonic()))
pace = made / (time.monotonic() - begun)
print(json.dumps({"made": made, "pace": round(pace, 1), "failures": failures}))
