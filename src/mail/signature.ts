import { createHmac } from 'node:crypto';

/** A signature that is computed while the bytes are written. */
export interface RunningSignature {
  update(bytes: Uint8Array): void;
  /** The text of the signature header. Ends the computation. */
  digest(): string;
}

/**
 * The value of X-Mandrill-Signature for a form: base64 of HMAC-SHA1 over the URL exactly as configured,
 * then name and decoded value of every parameter, sorted by name, with nothing in between.
 */
export function mandrillSignature(key: string, url: string, params: Readonly<Record<string, string>>): string {
  const hmac = createHmac('sha1', key).update(url);
  for (const name of Object.keys(params).sort()) hmac.update(name).update(params[name] ?? '');
  return hmac.digest('base64');
}

/** As `mandrillSignature`, for a form of one parameter whose decoded value (UTF-8) is handed over in pieces. */
export function runningMandrillSignature(key: string, url: string, name: string): RunningSignature {
  const hmac = createHmac('sha1', key).update(url).update(name);
  return {
    update(bytes) {
      hmac.update(bytes);
    },
    digest: () => hmac.digest('base64'),
  };
}

/**
 * The value of the Standard Webhooks header `webhook-signature`: for each key `v1,` and the base64 of HMAC-SHA256 over
 * `id.timestamp.body`, separated by spaces. The characters of a key are its bytes.
 */
export function standardSignature(
  keys: readonly string[],
  id: string,
  timestampSeconds: number,
  body: Uint8Array,
): string {
  const signature = runningStandardSignature(keys, id, timestampSeconds);
  signature.update(body);
  return signature.digest();
}

/** As `standardSignature`, for a body that is handed over in pieces. */
export function runningStandardSignature(
  keys: readonly string[],
  id: string,
  timestampSeconds: number,
): RunningSignature {
  const hmacs = keys.map((key) => createHmac('sha256', key).update(`${id}.${timestampSeconds}.`));
  return {
    update(bytes) {
      for (const hmac of hmacs) hmac.update(bytes);
    },
    digest: () => hmacs.map((hmac) => `v1,${hmac.digest('base64')}`).join(' '),
  };
}

/** A signing key in the form that Standard Webhooks libraries take: `whsec_` and the base64 of its bytes. */
export function toSigningSecret(key: string): string {
  return `whsec_${Buffer.from(key, 'utf8').toString('base64')}`;
}
