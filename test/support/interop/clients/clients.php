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
    require_once '/usr/share/php/Egulias/EmailValidator/autoload.php';
    require_once '/usr/share/php/Swift/swift_required.php';
    require_once '/usr/share/php/Symfony/Component/HttpClient/autoload.php';
    require_once '/usr/share/php/Symfony/Component/Mailer/Bridge/Mailchimp/autoload.php';

    $logger = new Logger('app', [new MandrillHandler($key, (new Swift_Message('monolog'))->setFrom('ops@sender.test')->setTo('monolog@to.test'))]);
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
