/** What to do about a problem of RFC 8555 section 6.7. `authority`: its names in CAA records. */
export function adviceOn(type: string, name: string, authority: readonly string[]): string {
  switch (type) {
    case 'connection':
      return `open port 80 of ${name} to the internet: the authority must reach this host there`;
    case 'dns':
      return `publish an A or AAAA record of ${name} with the address of this host`;
    case 'unauthorized':
    case 'incorrectResponse':
      return `another server answers on port 80 of ${name}: correct its address in the DNS, for IPv6 too`;
    case 'caa':
      return `add a CAA record for ${name} that allows ${authority.join(' or ') || 'the authority'}, or remove those there`;
    case 'rateLimited':
      return 'the authority limits orders; the next one waits as it asks';
    case 'rejectedIdentifier':
      return `the authority does not certify ${name}`;
    case 'externalAccountRequired':
      return 'set acme.eab_key_id and acme.eab_hmac_key to the values that the authority gave you';
    case 'invalidContact':
    case 'unsupportedContact':
      return 'set acme.email to an address that exists';
    case 'unreachable':
      return 'check that this host can connect to the authority (acme.directory), and acme.ca_file';
    default:
      return 'it is tried again by itself';
  }
}
