"""Reads messages with Python's email package: hexadecimal lines on stdin, the leaves and header fields that it finds on stdout, a line of JSON each."""
import codecs
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
            try:
                codecs.lookup(charset)
            except LookupError:
                charset = "windows-1252"
            shown = content.decode(charset, "replace").replace("\r\n", "\n").rstrip("\n")
        else:
            shown = content.hex()
        yield [part.get_content_type(), shown]


def parts(message):
    """The bytes of each part that has no parts, in order; of a message in it, nothing."""
    if message.get_content_maintype() == "message":
        yield None
    elif message.is_multipart():
        for part in message.get_payload():
            yield from parts(part)
    else:
        yield (message.get_payload(decode=True) or b"").hex()


for line in sys.stdin:
    message = email.message_from_bytes(bytes.fromhex(line), policy=email.policy.default)
    print(json.dumps({"leaves": list(leaves(message)), "parts": list(parts(message)), "subject": str(message["subject"] or ""), "from": str(message["from"] or "")}))
