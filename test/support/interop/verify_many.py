"""Verifies DKIM signatures with Debian's python3-dkim: JSON {"messages": [base64], "records": {name: text}} on stdin, a JSON list of booleans on stdout."""
import base64
import json
import sys

import dkim

job = json.load(sys.stdin)
records = job["records"]


def look_up(name, timeout=5):
    text = records.get(name.decode("utf-8", "replace").rstrip("."))
    return text and text.encode()


def is_valid(raw):
    try:
        return bool(dkim.DKIM(raw, minkey=1024).verify(dnsfunc=look_up))
    except Exception:  # what it cannot read, it says in many ways
        return False


json.dump([is_valid(base64.b64decode(message)) for message in job["messages"]], sys.stdout)
