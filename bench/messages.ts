import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createTransport } from 'nodemailer';

/** The zone that the measured daemon asks: SPF for the sender's domain, and the DKIM key. */
export interface Sender { readonly domain: string; readonly selector: string; readonly privateKey: string; readonly zone: Record<string, Record<string, unknown>> }

export function createSender(): Sender {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048, publicKeyEncoding: { type: 'spki', format: 'der' }, privateKeyEncoding: { type: 'pkcs8', format: 'pem' } });
  const domain = 'sender.example';
  const zone = {
    [domain]: { TXT: ['v=spf1 ip4:127.0.0.0/8 -all'] },
    [`bench._domainkey.${domain}`]: { TXT: [`v=DKIM1; k=rsa; p=${publicKey.toString('base64')}`] },
    [`_dmarc.${domain}`]: { TXT: ['v=DMARC1; p=none'] },
  };
  return { domain, selector: 'bench', privateKey, zone };
}

/** A message of about `bytes` bytes as applications send them: text and HTML, and an attachment when it is large. */
export async function compose(bytes: number, signedBy: Sender | undefined): Promise<Buffer> {
  const overhead = signedBy ? 1700 : 1100;
  const words = 'The engine weaves algebraic patterns just as the loom weaves flowers and leaves. ';
  const part = (share: number) => words.repeat(Math.max(1, Math.ceil((Math.min(bytes, 40_000) - overhead) * share / words.length)));
  const attached = bytes > 60_000 ? [{ filename: 'engine.bin', content: randomBytes(Math.floor((bytes - 45_000) * 0.73)) }] : [];
  const transport = createTransport({ streamTransport: true, buffer: true, newline: 'windows' });
  const { message } = await transport.sendMail({
    from: 'Ada Lovelace <ada@sender.example>', to: 'Bench <bench@in.example>', subject: 'Notes upon the memoir',
    text: part(0.4), html: `<html><body><p>${part(0.5)}</p></body></html>`, attachments: attached,
    ...(signedBy ? { dkim: { domainName: signedBy.domain, keySelector: signedBy.selector, privateKey: signedBy.privateKey } } : {}),
  });
  if (!Buffer.isBuffer(message)) throw new Error('a buffer was asked for');
  return message;
}
