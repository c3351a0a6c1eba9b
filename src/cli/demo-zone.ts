import { generateKeyPair } from 'node:crypto';
import { promisify } from 'node:util';
import { createServer, Packet } from 'dns2';
import { frozen } from '../base/frozen.ts';

/** The domain that the mail of the demo comes from. */
export const SENDER_DOMAIN = 'example.org';
export const SELECTOR = 'demo';

/** A name server with one zone, and the key that its mail is signed with. */
export interface DemoZone {
  /** `127.0.0.1:port`, as the settings want it. */
  readonly server: string;
  /** PEM. */
  readonly privateKey: string;
  stop(): Promise<void>;
}

/** Text of a TXT record goes in strings of at most 255 octets (RFC 1035 section 3.3.14). */
const MAX_STRING = 255;
const TTL = 300;
const NXDOMAIN = 3;

/**
 * Starts a name server on loopback for the domain of the demo: its mail comes from this machine and is signed with a
 * key made now, so that SPF, DKIM and DMARC have something to say on a machine without any name server. Every other
 * name is not there.
 */
export async function startDemoZone(): Promise<DemoZone> {
  const { publicKey, privateKey } = await promisify(generateKeyPair)('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'der' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  const texts: ReadonlyMap<string, string> = new Map([
    [SENDER_DOMAIN, 'v=spf1 ip4:127.0.0.1 -all'],
    [`${SELECTOR}._domainkey.${SENDER_DOMAIN}`, `v=DKIM1; k=rsa; p=${publicKey.toString('base64')}`],
    [`_dmarc.${SENDER_DOMAIN}`, 'v=DMARC1; p=reject'],
  ]);
  const server = createServer({
    udp: true,
    handle(request, send) {
      const answer = Packet.createResponseFromRequest(request);
      const [question] = request.questions;
      const text = texts.get(question?.name.toLowerCase() ?? '');
      if (text === undefined) answer.header.rcode = NXDOMAIN;
      else if (question?.type === Packet.TYPE.TXT) answer.answers.push(toRecord(question.name, text));
      // Who asked may be gone at the end of the demo.
      void send(answer).catch(() => {});
    },
  });
  const { udp } = await server.listen({ udp: { port: 0, address: '127.0.0.1' } });
  return frozen({ server: `127.0.0.1:${udp?.port ?? 0}`, privateKey, stop: () => server.close() });
}

function toRecord(name: string, text: string) {
  const strings = text.match(new RegExp(`.{1,${MAX_STRING}}`, 'g')) ?? [];
  return Object.assign(new Packet.Resource(name, Packet.TYPE.TXT, Packet.CLASS.IN, TTL), { data: strings });
}
