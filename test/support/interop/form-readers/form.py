"""Reads a multipart form as a parser of Python does: form.py email|werkzeug|django FILE CONTENT-TYPE. Prints fields and files as JSON."""

import email.parser
import email.policy
import io
import json
import sys


def with_email(body, content_type):
    head = f"Content-Type: {content_type}\r\nMIME-Version: 1.0\r\n\r\n".encode()
    form = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    fields, files = [], []
    for part in form.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if part.get_filename() is None:
            fields.append([name, content.decode("utf-8", "replace")])
        else:
            files.append([name, part.get_filename()])
    return fields, files


def with_werkzeug(body, content_type):
    from werkzeug.formparser import parse_form_data

    environ = {
        "REQUEST_METHOD": "POST",
        "CONTENT_TYPE": content_type,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    _, form, files = parse_form_data(environ)
    return list(form.items(multi=True)), [[name, file.filename] for name, file in files.items(multi=True)]


def with_django(body, content_type):
    import django
    from django.conf import settings
    from django.http.multipartparser import MultiPartParser
    from django.core.files.uploadhandler import MemoryFileUploadHandler

    settings.configure(DATA_UPLOAD_MAX_MEMORY_SIZE=None)
    django.setup()
    meta = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(body))}
    form, files = MultiPartParser(meta, io.BytesIO(body), [MemoryFileUploadHandler()]).parse()
    fields = [[name, value] for name, values in form.lists() for value in values]
    return fields, [[name, file.name] for name, all in files.lists() for file in all]


reader, path, content_type = sys.argv[1:]
with open(path, "rb") as file:
    body = file.read()
fields, files = {"email": with_email, "werkzeug": with_werkzeug, "django": with_django}[reader](body, content_type)
print(json.dumps({"fields": fields, "files": files}))
