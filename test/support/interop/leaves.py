"""Leaf parts of messages, as Python's email package finds them: hexadecimal lines on stdin, a line of JSON for each on stdout. An attached
message is one leaf."""
import email
import email.policy
import json
import sys


def walk(part):
    if part.get_content_maintype() == "message" or not part.is_multipart():
        yield part
        return
    for child in part.get_payload():
        yield from walk(child)


def leaf(part):
    if part.get_content_maintype() == "message":
        return {"type": part.get_content_type(), "hex": None, "text": ""}
    encoding = part["content-transfer-encoding"]
    if encoding is not None:  # Python does not know "base64 "
        part.replace_header("content-transfer-encoding", str(encoding).strip())
    content = part.get_payload(decode=True) or b""
    text = ""
    if part.get_content_maintype() == "multipart":  # without parts: every program shows it as text
        text = content.decode("utf-8", "replace")
    if part.get_content_maintype() == "text":
        try:
            text = content.decode(part.get_content_charset("utf-8"), "replace")
        except LookupError:
            text = content.decode("latin-1")
    return {"type": part.get_content_type(), "hex": content.hex(), "text": text}


for line in sys.stdin:
    try:
        message = email.message_from_bytes(bytes.fromhex(line), policy=email.policy.compat32)
        leaves = [leaf(part) for part in walk(message)]
        defects = sorted({type(one).__name__ for part in message.walk() for one in part.defects})
        print(json.dumps({"leaves": leaves, "defects": defects}))
    except Exception as error:  # Python gives up on some
        print(json.dumps({"leaves": None, "defects": [type(error).__name__]}))
