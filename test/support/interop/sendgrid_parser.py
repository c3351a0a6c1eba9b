"""SendGrid's own parser for Python, given one post: sendgrid.helpers.inbound.parse behind werkzeug.

Usage: sendgrid_parser.py CONTENT_TYPE <POST

Prints what it made of it as JSON.
"""

import importlib.util
import io
import json
import sys

from werkzeug.wrappers import Request

spec = importlib.util.find_spec("sendgrid")
base = spec.submodule_search_locations[0] + "/helpers/inbound/"
# By its path: the package itself would load what sends mail.
parse = importlib.util.spec_from_file_location("parse", base + "parse.py")
module = importlib.util.module_from_spec(parse)
parse.loader.exec_module(module)


class Config:
    # As its example application lists them.
    keys = [line.strip()[2:] for line in open(base + "config.yml") if line.startswith(" - ")]


body = sys.stdin.buffer.read()
request = Request(
    {
        "REQUEST_METHOD": "POST",
        "CONTENT_TYPE": sys.argv[1],
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
)
parsed = module.Parse(Config, request)
raw = parsed.get_raw_email()
attachments = [
    [one["file_name"], one["type"], one["contents"].decode() if isinstance(one["contents"], bytes) else one["contents"]]
    for one in parsed.attachments() or []
]
print(json.dumps({"values": parsed.key_values(), "subject": raw and str(raw["Subject"]), "attachments": attachments}))
