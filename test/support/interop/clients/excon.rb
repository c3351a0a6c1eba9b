# Excon with JSON, as both official clients call it (mandrill-api, MailchimpTransactional); neither is a Debian package.
require 'excon'
require 'json'

BASE, KEY, HOOK = ARGV
SESSION = Excon.new(BASE)

def ask(path, params)
  body = JSON.generate(params.merge(key: KEY))
  headers = { 'Content-Type' => 'application/json' }
  answer = SESSION.post(path: "/api/1.0/#{path}.json", headers: headers, body: body)
  [answer.status, JSON.parse(answer.body)]
end

def call(path, params = {})
  status, body = ask(path, params)
  status == 200 ? body : raise("#{path}: #{status} #{body.to_json}")
end

def check(what, expected, seen)
  expected == seen or raise "#{what}: #{seen.to_json}"
end

def message(subject)
  { from_email: 'ops@sender.test', subject: subject, text: 'Hi', bcc_address: nil, to: [{ email: 'excon@to.test' }] }
end

check('ping', 'PONG!', call('users/ping'))

# nil is what mandrill-api has for every argument that is left out.
sent = call('messages/send', message: message('excon'), async: false, ip_pool: nil, send_at: nil)
template = { name: 'Excon', from_email: nil, from_name: nil, subject: nil, code: '<p>Hi</p>', text: nil }
call('templates/add', **template, publish: true, labels: [])
everything = { query: '*', date_from: nil, date_to: nil, tags: nil, senders: nil, api_keys: nil, limit: 100 }
check('search', true, call('messages/search', everything).any? { |found| found['subject'] == 'excon' })
webhook = call('webhooks/add', url: HOOK, description: nil, events: ['send'])
kept = call('webhooks/update', id: webhook['id'], url: HOOK, description: nil, events: [])
check('events', ['send'], kept['events'])

# What the samples of MailchimpTransactional have for no content.
nothing = { template_name: 'excon', template_content: [{}] }
templated = call('messages/send-template', **nothing, message: message('excon template'))

status, error = ask('webhooks/info', id: 999)
check('error', [404, 'error', 'Unknown_Webhook'], [status, error['status'], error['name']])
puts JSON.generate([*sent, *templated].map { |one| one['_id'] })
