<?php
// Monolog's and Symfony's own code, as Debian packages it, led to the address that is given.
namespace Monolog\Handler {
    /** Monolog calls curl by its bare name, so that this is asked first. */
    function curl_setopt($handle, int $option, $value): bool
    {
        if ($option === CURLOPT_URL) $value = str_replace('https://mandrillapp.com', $GLOBALS['base'], $value);
        return \curl_setopt($handle, $option, $value);
    }
}

namespace {
    use Monolog\Handler\MandrillHandler;
    use Monolog\Logger;
    use Symfony\Component\HttpClient\DecoratorTrait;
    use Symfony\Component\HttpClient\HttpClient;
    use Symfony\Component\Mailer\Bridge\Mailchimp\Transport\MandrillApiTransport;
    use Symfony\Component\Mailer\Bridge\Mailchimp\Transport\MandrillHttpTransport;
    use Symfony\Component\Mime\Address;
    use Symfony\Component\Mime\Email;
    use Symfony\Contracts\HttpClient\HttpClientInterface;
    use Symfony\Contracts\HttpClient\ResponseInterface;

    [, $base, $key] = $argv;
    require_once '/usr/share/php/Monolog/autoload.php';
    require_once '/usr/share/php/Symfony/Component/HttpClient/autoload.php';
    require_once '/usr/share/php/Symfony/Component/Mailer/Bridge/Mailchimp/autoload.php';

    // What Monolog takes its message from; Debian has no Swift Mailer any more.
    class Swift { const VERSION = '6.3.0'; }
    class Swift_Message
    {
        private $body = '';
        public function setBody($body) { $this->body = $body; }
        public function setDate($date) {}
        public function getSubject() { return 'monolog'; }
        public function setSubject($subject) {}
        public function __toString() { return "From: ops@sender.test\r\nTo: monolog@to.test\r\nSubject: monolog\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" . $this->body; }
    }
    $logger = new Logger('app', [new MandrillHandler($key, new Swift_Message())]);
    $logger->error('Grüße: the disk is full');

    class Led implements HttpClientInterface
    {
        use DecoratorTrait;
        public function request(string $method, string $url, array $options = []): ResponseInterface
        {
            return $this->client->request($method, str_replace('https://mandrillapp.com', $GLOBALS['base'], $url), $options);
        }
    }
    $client = new Led(HttpClient::create());
    $mail = fn (string $name) => (new Email())->from(new Address('ops@sender.test', 'Ops'))->to("$name@to.test")->subject($name)->text('Hi')->html('<p>Hi</p>')->attach('a,b', 'a.csv', 'text/csv');
    $sent = [
        (new MandrillApiTransport($key, $client))->send($mail('symfony-api'))->getMessageId(),
        (new MandrillHttpTransport($key, $client))->send($mail('symfony-http'))->getMessageId(),
    ];
    echo json_encode($sent), "\n";
}
