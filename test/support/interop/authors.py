"""Reads messages (JSON: a list of base64) and prints the authors that Python's email package finds, in its two ways."""
import base64
import email
import email.policy
import email.utils
import json
import sys


def authors(raw):
    modern = email.message_from_bytes(raw, policy=email.policy.default)
    found = {address.addr_spec for field in modern.get_all("from", []) for address in field.addresses}
    legacy = email.message_from_bytes(raw)
    found |= {address for _, address in email.utils.getaddresses([str(value) for value in legacy.get_all("from", [])])}
    return sorted(found)


print(json.dumps([authors(base64.b64decode(text)) for text in json.load(sys.stdin)]))
