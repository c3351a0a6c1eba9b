// The smallest programs that receive mail: they check the signature, and read what came. test/interop/receivers.test.ts
// runs them.

export interface ReceiverSample {
  readonly id: 'node' | 'rails' | 'django' | 'php';
  readonly label: string;
  readonly code: string;
}

const NODE = `// WEBHOOK_SECRET=whsec_... node receiver.mjs
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';
import { env } from 'node:process';

const key = Buffer.from(env.WEBHOOK_SECRET.slice('whsec_'.length), 'base64');
createServer(async (request, response) => {
  const { method, headers } = request;
  const body = Buffer.concat(await request.toArray()).toString();
  const signed = \`\${headers['webhook-id']}.\${headers['webhook-timestamp']}.\${body}\`;
  const right = Buffer.from(\`v1,\${createHmac('sha256', key).update(signed).digest('base64')}\`);
  const isRight = (one) => one.length === right.length && timingSafeEqual(Buffer.from(one), right);
  if (method !== 'POST') return response.end();
  if (!String(headers['webhook-signature']).split(' ').some(isRight)) return response.writeHead(401).end();
  for (const { msg } of JSON.parse(new URLSearchParams(body).get('mandrill_events'))) console.log(msg.subject);
  response.end();
}).listen(env.PORT ?? 8000);
`;

const RAILS = `# config/routes.rb: match "/hooks/mail", to: "mail#create", via: :all
class MailController < ActionController::API
  KEY = Base64.strict_decode64(ENV.fetch("WEBHOOK_SECRET").delete_prefix("whsec_"))

  def create
    return head :ok unless request.post?
    signed = [request.headers["webhook-id"], request.headers["webhook-timestamp"], request.raw_post].join(".")
    right = "v1," + Base64.strict_encode64(OpenSSL::HMAC.digest("SHA256", KEY, signed))
    given = request.headers["webhook-signature"].to_s.split
    return head :unauthorized unless given.any? { |one| ActiveSupport::SecurityUtils.secure_compare(one, right) }
    JSON.parse(params[:mandrill_events]).each { |event| logger.info event["msg"]["subject"] }
    head :ok
  end
end
`;

const DJANGO = `# urls.py: path("hooks/mail", mail)    settings.py: DATA_UPLOAD_MAX_MEMORY_SIZE = 50_000_000
import base64, hmac, json, os
from django.http import HttpResponse
from django.views.decorators.csrf import csrf_exempt

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))

@csrf_exempt
def mail(request):
    if request.method != "POST":
        return HttpResponse()
    given = request.headers.get
    signed = f"{given('webhook-id')}.{given('webhook-timestamp')}.".encode() + request.body
    right = b"v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256"))
    if not any(hmac.compare_digest(one.encode(), right) for one in given("webhook-signature", "").split()):
        return HttpResponse(status=401)
    for event in json.loads(request.POST["mandrill_events"]):
        print(event["msg"]["subject"])
    return HttpResponse()
`;

const PHP = `<?php // php.ini: post_max_size = 50M
if ($_SERVER['REQUEST_METHOD'] !== 'POST') exit;
$header = fn($name) => $_SERVER["HTTP_WEBHOOK_$name"] ?? '';
$key = base64_decode(substr(getenv('WEBHOOK_SECRET'), strlen('whsec_')));
$signed = $header('ID') . '.' . $header('TIMESTAMP') . '.' . file_get_contents('php://input');
$right = 'v1,' . base64_encode(hash_hmac('sha256', $signed, $key, true));
if (!array_filter(explode(' ', $header('SIGNATURE')), fn($one) => hash_equals($right, $one))) {
  http_response_code(401);
  exit;
}
foreach (json_decode($_POST['mandrill_events'], true) as $event) error_log($event['msg']['subject']);
`;

export const RECEIVERS: readonly ReceiverSample[] = [
  { id: 'node', label: 'Node', code: NODE },
  { id: 'rails', label: 'Rails', code: RAILS },
  { id: 'django', label: 'Django', code: DJANGO },
  { id: 'php', label: 'PHP', code: PHP },
];
