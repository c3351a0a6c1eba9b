"""The two official Python clients, led to the address that is given."""
import json
import sys

import mailchimp_transactional
import mandrill

base, key, hook = sys.argv[1:]
for module in (mandrill, getattr(mandrill, "mandrill", mandrill)):
    module.ROOT = base + "/api/1.0/"


def message(name):
    return {"from_email": "ops@sender.test", "subject": name, "text": "Hi", "to": [{"email": name + "@to.test"}]}


old = mandrill.Mandrill(key)
assert old.users.ping2() == {"PING": "PONG!"}
sent = [old.messages.send(message("python-old"))[0]["_id"]]
added = old.webhooks.add(hook, "from python", ["send"])
# The list of events is empty by default.
kept = old.webhooks.update(added["id"], hook, "still")
assert kept["events"] == ["send"] and kept["auth_key"] == added["auth_key"], kept
assert old.messages.search()[0]["subject"] == "python-old"
old.exports.activity()
try:
    old.webhooks.info(999)
    raise SystemExit("no error came")
except mandrill.UnknownWebhookError:
    pass

new = mailchimp_transactional.Client(key)
new.api_client.host = base + "/api/1.0"
sent.append(new.messages.send({"message": message("python-new")})[0]["_id"])
assert new.messages.info({"id": sent[1]})["subject"] == "python-new"
assert new.webhooks.update({"id": added["id"], "url": hook, "events": []})["events"] == ["send"]
try:
    new.webhooks.info({"id": 999})
    raise SystemExit("no error came")
except mailchimp_transactional.api_client.ApiClientError as error:
    assert error.status_code == 404, error
print(json.dumps(sent))
