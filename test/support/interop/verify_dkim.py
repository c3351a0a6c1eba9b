"""Verifies DKIM signatures with Debian's python3-dkim: JSON {"message": base64, "records": {name: text}} on stdin, "valid" or "invalid" on stdout."""
import base64
import json
import sys

import dkim

job = json.load(sys.stdin)
records = job["records"]


def look_up(name, timeout=5):
    text = records.get(name.decode("ascii").rstrip("."))
    return text and text.encode("ascii")


verifier = dkim.DKIM(base64.b64decode(job["message"]), minkey=2048)
try:
    valid = verifier.verify(dnsfunc=look_up)
except dkim.ValidationError:  # for the body, where a header that was changed is only False
    valid = False
print("valid " + ":".join(name.decode("ascii") for name, _ in verifier.signed_headers) if valid else "invalid")
