"""What people build by hand in Python: aiosmtpd, the parser of the standard library, a POST of JSON with urllib.

The 250 is given when the post was answered. Usage: by_hand.py PORT SINK_URL
"""
import asyncio
import base64
import json
import sys
import urllib.request
from email import policy
from email.parser import BytesParser

from aiosmtpd.smtp import SMTP

PORT, SINK = int(sys.argv[1]), sys.argv[2]
PARSER = BytesParser(policy=policy.default)


class Handler:
    async def handle_DATA(self, server, session, envelope):
        mail = PARSER.parsebytes(envelope.content)
        bodies = {"text/plain": "", "text/html": ""}
        attachments = []
        for part in mail.walk():
            if part.is_multipart():
                continue
            kind = part.get_content_type()
            if part.is_attachment() or kind not in bodies:
                content = base64.b64encode(part.get_payload(decode=True)).decode()
                attachments.append({"name": part.get_filename(), "type": kind, "content": content})
            else:
                bodies[kind] += part.get_content()
        body = json.dumps({
            "recipients": envelope.rcpt_tos, "from": mail["from"], "to": mail["to"], "subject": mail["subject"],
            "text": bodies["text/plain"], "html": bodies["text/html"], "headers": mail.items(),
            "attachments": attachments, "raw": envelope.content.decode("utf-8", "replace"),
        }).encode()
        post = urllib.request.Request(SINK, body, {"content-type": "application/json"})
        with urllib.request.urlopen(post) as answer:
            answer.read()
        return "250 OK"


async def main():
    loop = asyncio.get_running_loop()
    handler = Handler()
    server = await loop.create_server(
        lambda: SMTP(handler, data_size_limit=26_214_400, enable_SMTPUTF8=True, loop=loop), "127.0.0.1", PORT, backlog=1000)
    await server.serve_forever()


asyncio.run(main())
