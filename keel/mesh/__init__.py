"""The mesh, and the etcd cluster that lives on it: a map of the rooms. What a module owns stands in
its first line. Those marked * decide and never act (pure); `etcd...` is the registry's.

The mesh
    what is signed: wire* keys* identity* records* entry* drafts*
    who is a member: roster* branches* standing* votes* members* trust* removal*
    the channel: envelope* nonces* limits* refusal* exchange* server client receive asked turns talk
    what it has done for it: passes passmsg*
    all members at once: spread
    this node's state: store selfrecord rights
    coming in: create token* invite* joinmsg* redeem* admit join joinplan pendingjoin silence*
    going: leave remove
    this host's network: wgconf* firewallrules* window* netwindow netsettings network up
    day by day: sync behind trustflow liveness* clocks* status report warnings* doctor

The registry (etcd)
    its joints with the mesh: etcd etcddoors etcdmsg* formmsg*
    certificates: etcdpki* etcdcert* etcdprofile* etcdchain* etcdtrust* etcdcrl* etcdgrants*
    whom to believe: etcdcheck* (the holder) etcdrequests* (a member) etcdholder (who it is)
    on disk: etcdstate* etcdstore etcdbeside
    a pass: etcdtend duty* tended
    a member's grant: etcdcredentials etcdenrol etcdissue etcdlapse
    what the holder gave it: etcdtaken
    its own etcd: etcdmember etcdown etcdplan* etcdconf* etcdids* etcdplace etcdenv
    every start: etcdguard* etcdsettings* etcdstart etcdpermit
    asking etcd: etcdclient etcdwords* etcdchange etcdlist
    the birth: birth* etcdbook etcdbirth
    by hand: forming* etcdform etcdformview etcdformdoors fitness* etcdmeasure
    who may form: reservation* etcdreserve
    growing: growth* etcdgrow etcdsight etcdspread
    a lost member: etcdrecover
    going: expulsion* etcdremove etcdrevoke etcdcrlspread
    renewal: renewal* etcdrenew etcdsupersede
    disks that were put back: etcdlived (a member's) etcdmemory etcdrestored (the holder's)
    seen and said: etcdlook etcdwarnings alerts* alerting lastchannels gauges
"""
