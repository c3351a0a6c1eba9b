# Verifies DKIM signatures with Debian's Mail::DKIM: JSON {"messages": [base64], "records": {name: text}} on stdin, a JSON list of 1 and 0 on stdout.
use strict;
use warnings;
use JSON::PP;
use MIME::Base64;
use Net::DNS;
use Mail::DKIM::DNS;
use Mail::DKIM::Verifier;

my $job = decode_json(do { local $/; <STDIN> });

package Zone {
    sub send {
        my (undef, $name, $type) = @_;
        my $answer = Net::DNS::Packet->new($name, $type);
        my $text = $job->{records}{lc $name};
        $answer->header->rcode(defined $text ? 'NOERROR' : 'NXDOMAIN');
        $answer->push(answer => Net::DNS::RR->new(owner => $name, type => 'TXT', txtdata => [unpack '(a250)*', $text])) if defined $text;
        return $answer;
    }
    sub errorstring { 'NXDOMAIN' }
}

Mail::DKIM::DNS::resolver(bless {}, 'Zone');
print encode_json([map {
    my $verifier = Mail::DKIM::Verifier->new;
    eval { $verifier->PRINT(decode_base64($_)); $verifier->CLOSE; $verifier->result eq 'pass' } ? 1 : 0;
} @{ $job->{messages} }]);
