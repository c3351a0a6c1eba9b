<?php
// Guzzle's forms and Swift Mailer's messages, handed over as the official client (mailchimp/transactional: form_params,
// the key last, a path without .json) and Laravel's transport do it. Neither client is a Debian package.
error_reporting(E_ALL & ~E_DEPRECATED);
require_once '/usr/share/php/GuzzleHttp/autoload.php';
require_once '/usr/share/php/Egulias/EmailValidator/autoload.php';
require_once '/usr/share/php/Swift/swift_required.php';

[, $base, $key, $hook] = $argv;
$client = new GuzzleHttp\Client();

function post(string $path, array $form): array|string
{
    $answer = $GLOBALS['client']->request('POST', "{$GLOBALS['base']}/api/1.0$path", ['form_params' => $form]);
    return json_decode($answer->getBody(), true);
}

function call(string $path, array $body = []): array|string
{
    return post($path, $body + ['key' => $GLOBALS['key']]);
}

function message(string $subject, array $fields = []): array
{
    $to = [['email' => 'guzzle@to.test', 'name' => null]];
    return ['from_email' => 'ops@sender.test', 'subject' => $subject, 'to' => $to] + $fields;
}

function check(bool $holds, string $what, $seen): void
{
    if (!$holds) throw new Exception("$what: " . json_encode($seen));
}

$pong = call('/users/ping');
check($pong === 'PONG!', 'ping', $pong);

// More than a megabyte, before which curl asks whether to go on (Expect: 100-continue).
$file = ['type' => 'text/plain', 'name' => 'a b.txt', 'content' => base64_encode(str_repeat("\xfb\xff", 800000))];
$sent = call('/messages/send', ['message' => message('guzzle', [
    'html' => '<p>100% & Grüße</p>',
    'headers' => [],
    'important' => true,
    'track_clicks' => false,
    'tags' => ['a', 'b'],
    'metadata' => ['site' => 'www'],
    'attachments' => [$file],
]), 'async' => false]);
$info = call('/messages/info', ['id' => $sent[0]['_id']]);
check($info['tags'] === ['a', 'b'] && $info['metadata'] === ['site' => 'www'], 'info', $info);

$code = '<p mc:edit="a">Hi</p>';
$added = call('/templates/add', ['name' => 'Guzzle', 'code' => $code, 'publish' => true, 'labels' => []]);
check($added['published_at'] !== null, 'published', $added);
$template = ['template_name' => 'guzzle', 'template_content' => []];
$templated = call('/messages/send-template', $template + ['message' => message('guzzle template')]);
$names = array_column(call('/templates/list'), 'name');
check(in_array('Guzzle', $names), 'templates', $names);

$webhook = call('/webhooks/add', ['url' => $hook, 'events' => ['send']]);
$kept = call('/webhooks/update', ['id' => $webhook['id'], 'url' => $hook, 'events' => []]);
check($kept['events'] === ['send'], 'an empty list of events', $kept);
try {
    call('/templates/info', ['name' => 'none']);
    throw new Exception('no error came');
} catch (GuzzleHttp\Exception\RequestException $e) {
    $error = json_decode($e->getResponse()->getBody(), true);
    check($error['name'] === 'Unknown_Template' && $error['status'] === 'error', 'error', $error);
}

$mail = (new Swift_Message('swift'))
    ->setFrom(['ops@sender.test' => 'Ops'])
    ->setTo(['swift@to.test' => 'S'])
    ->setCc('cc@to.test')
    ->setBcc('bcc@to.test')
    ->setBody('<p>Grüße</p>', 'text/html')
    ->addPart('Grüße', 'text/plain');
$to = array_keys($mail->getTo() + $mail->getCc() + $mail->getBcc());
$form = ['key' => $key, 'to' => $to, 'raw_message' => $mail->toString(), 'async' => true];
$raw = post('/messages/send-raw.json', $form);
check(array_column($raw, 'email') === $to, 'recipients', $raw);

echo json_encode(array_column([...$sent, ...$templated, ...$raw], '_id')), "\n";
