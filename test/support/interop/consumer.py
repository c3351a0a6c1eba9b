"""A Django project in one file: django-anymail's views behind wsgiref, as an independent consumer of our posts.

Usage: consumer.py PORT KEY [USER:PASSWORD]   (port 0: one is chosen)

Prints {"listening": PORT} once it takes requests, then one JSON line for every message that anymail understood and
{"refused": STATUS} for every post that it did not take. Ends when standard input ends.
"""

import base64
import json
import sys
import threading
import warnings
from email.header import decode_header, make_header
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import include, path

PORT, KEY = int(sys.argv[1]), sys.argv[2]
LOGIN = {"WEBHOOK_SECRET": sys.argv[3]} if len(sys.argv) > 3 else {}


SAYING = threading.Lock()


def say(value):
    with SAYING:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class QuietHandler(WSGIRequestHandler):
    def log_message(self, format, *args):
        pass

    def log_request(self, code="-", size="-"):
        status = int(getattr(code, "value", code))
        if self.command == "POST" and status != 200:
            say({"refused": status})


urlpatterns = [path("anymail/", include("anymail.urls"))]

# anymail.W002 and the like are for projects that send; this one only receives.
warnings.simplefilter("ignore")
server = make_server("127.0.0.1", PORT, None, server_class=Server, handler_class=QuietHandler)
url = "http://127.0.0.1:%d/anymail/mandrill/" % server.server_port

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    SECRET_KEY="only for this test",
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["anymail"],
    ANYMAIL={"MANDRILL_WEBHOOK_KEY": KEY, "MANDRILL_WEBHOOK_URL": url, "MAILGUN_WEBHOOK_SIGNING_KEY": KEY, **LOGIN},
    # Django refuses forms above 2.5 MB; anymail's documentation asks for more room too.
    DATA_UPLOAD_MAX_MEMORY_SIZE=64 * 1024 * 1024,
    LOGGING_CONFIG=None,
)
django.setup()

from anymail.signals import inbound  # noqa: E402 (needs the settings)


def part_of(part):
    return {
        "name": part.get_filename(),
        "type": part.get_content_type(),
        "base64": base64.b64encode(part.get_payload(decode=True)).decode(),
    }


def addresses_of(message, name):
    # Of an empty list this version of anymail makes an empty field, which it cannot read.
    return [address.addr_spec for address in message.get_address_header(name)] if message[name] else []


def received(sender, event, esp_name, **kwargs):
    message = event.message
    raw = event.esp_event["msg"] if esp_name == "Mandrill" else {}
    say({
        "esp": esp_name,
        "ts": int(event.timestamp.timestamp()) if event.timestamp else None,
        "envelope_sender": message.envelope_sender,
        "stripped_text": message.stripped_text,
        "spam_detected": message.spam_detected,
        "envelope_recipient": message.envelope_recipient,
        # Of a message that it puts together itself, this version of anymail leaves the name encoded.
        "from_name": str(make_header(decode_header(message.from_email.display_name))),
        "from_email": message.from_email.addr_spec,
        "to": addresses_of(message, "To"),
        "cc": addresses_of(message, "Cc"),
        "subject": message.subject,
        "text": message.text,
        "html": message.html,
        "spam_score": message.spam_score,
        "attachments": [part_of(part) for part in message.attachments],
        "inline": {cid: part_of(part) for cid, part in message.inline_attachments.items()},
        "raw": {key: raw.get(key) for key in
                ("email", "from_email", "from_name", "to", "subject", "text", "html", "spf", "dkim", "spam_report",
                 "attachments", "images", "tags", "sender", "template")},
        "raw_msg_start": raw.get("raw_msg", "")[:9],
    })


inbound.connect(received)
server.set_app(get_wsgi_application())
say({"listening": server.server_port})
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
