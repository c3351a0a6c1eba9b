"""Reads messages with Python's email package: hexadecimal lines on stdin, the leaves and header fields that it finds on stdout, a line of JSON each."""
import email
import email.policy
import json
import sys


def leaves(message):
    for part in message.walk():
        if part.is_multipart():
            continue
        content = part.get_payload(decode=True) or b""
        if part.get_content_maintype() == "text":
            charset = {"iso-8859-1": "windows-1252", "us-ascii": "windows-1252"}.get(part.get_content_charset("us-ascii"), part.get_content_charset("us-ascii"))
            shown = content.decode(charset, "replace").replace("\r\n", "\n").rstrip("\n")
        else:
            shown = content.hex()
        yield [part.get_content_type(), shown]


for line in sys.stdin:
    message = email.message_from_bytes(bytes.fromhex(line), policy=email.policy.default)
    print(json.dumps({"leaves": list(leaves(message)), "subject": str(message["subject"] or ""), "from": str(message["from"] or "")}))
