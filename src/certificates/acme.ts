import { createHash, createHmac, createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { parseJson } from '../base/schema.ts';
import {
  type AcmeAnswer,
  AcmeFault,
  type AcmeHttp,
  acmeFaultOf,
  problemShape,
  retryAfterOf,
  toProblem,
} from './acme-http.ts';
import { certificateRequest } from './csr.ts';

export interface AcmeSettings {
  /** The URL of the authority's directory. */
  readonly directory: string;
  /** Where the authority writes to; empty: nowhere. */
  readonly email: string;
  /** External account binding, which some authorities ask for; empty: none. */
  readonly eab: { readonly keyId: string; readonly hmacKey: string };
}

interface AcmeDeps {
  readonly wire: AcmeHttp;
  /** The key of our account, PKCS #8 in PEM. */
  readonly accountKey: () => Promise<string>;
  /** For the dates in answers. */
  readonly clock: Pick<Clock, 'now'>;
  /** Waits between two polls of an order. */
  readonly wait: (ms: number) => Promise<void>;
}

/** A certificate as the authority issued it: the chain, and our key; both PEM. */
export interface Issued {
  readonly chain: string;
  readonly key: string;
}

/** Shows the answer to a challenge at http://NAME/.well-known/acme-challenge/TOKEN until `hide` is called. */
export type PublishChallenge = (token: string, answer: string) => Promise<() => Promise<void>>;

const directoryShape = z.object({
  newNonce: z.string(),
  newAccount: z.string(),
  newOrder: z.string(),
  renewalInfo: z.string().optional(),
  meta: z.object({ caaIdentities: z.array(z.string()).optional() }).optional(),
});
type Directory = z.output<typeof directoryShape>;

const orderShape = z.object({
  status: z.string(),
  authorizations: z.array(z.string()),
  finalize: z.string(),
  certificate: z.string().optional(),
  error: problemShape.optional(),
});

const authorizationShape = z.object({
  status: z.string(),
  challenges: z.array(
    z.object({
      type: z.string(),
      url: z.string().optional(),
      token: z.string().optional(),
      error: problemShape.optional(),
    }),
  ),
});

const windowShape = z.object({
  suggestedWindow: z.object({ start: z.iso.datetime({ offset: true }), end: z.iso.datetime({ offset: true }) }),
});

/** Attempts for one request while the authority refuses its nonce (RFC 8555 section 6.5). */
const NONCE_TRIES = 12;
/**
 * Refusals of an order for the certificate that it replaces (RFC 9773 section 5): an order that was interrupted has
 * replaced it, or the authority does not know it as ours, for example after it lost our account.
 */
const NOT_REPLACED: ReadonlySet<string> = new Set(['alreadyReplaced', 'malformed', 'unauthorized']);
/** Polls of a pending order or authorization, and the pauses between them. Milliseconds. */
const LOOKS = 40;
const LOOK_MS = 1_000;
const MAX_LOOK_MS = 15_000;
const DIRECTORY_MS = 24 * 3_600_000;
/** Tokens are base64url (RFC 8555 section 8.1); anything else would not be answered. */
export const CHALLENGE_TOKEN = /^[\w-]{16,200}$/;

export type Acme = ReturnType<typeof createAcme>;

/** A client of RFC 8555: orders certificates for single names, proven by HTTP. Its calls throw `AcmeFault`. */
export function createAcme(settings: AcmeSettings, { wire, accountKey, clock, wait }: AcmeDeps) {
  let directory: Promise<Directory> | undefined;
  let directoryReadAt = 0;
  let account: Promise<string> | undefined;
  let nonce: string | undefined;

  /** Reads the directory, once a day; again after a failure. */
  function readDirectory(): Promise<Directory> {
    if (clock.now() - directoryReadAt > DIRECTORY_MS) directory = undefined;
    if (directory) return directory;
    directoryReadAt = clock.now();
    const reading = wire.send('GET', settings.directory).then((answer) => {
      const read = answer.status === 200 && parseJson(directoryShape, answer.text);
      if (read) return read;
      throw answer.status === 200
        ? unexpected(`${settings.directory} is not an ACME directory`)
        : acmeFaultOf(answer, clock.now());
    });
    reading.catch(() => {
      directory = undefined;
    });
    directory = reading;
    return reading;
  }

  /** The URL of our account, which is created if there is none for our key. */
  function openAccount(): Promise<string> {
    account ??= register();
    account.catch(() => {
      account = undefined;
    });
    return account;
  }

  async function register(): Promise<string> {
    const { newAccount } = await readDirectory();
    const signer = toSigner(await accountKey());
    const { keyId, hmacKey } = settings.eab;
    const answer = await post(newAccount, { jwk: signer.jwk }, signer, {
      termsOfServiceAgreed: true,
      ...(settings.email !== '' && { contact: [`mailto:${settings.email}`] }),
      ...(keyId !== '' && { externalAccountBinding: bind(signer.jwk, newAccount, keyId, hmacKey) }),
    });
    return answer.header('location') ?? fail('the authority named no account');
  }

  /** Asks as our account. If the authority has lost it, it is created again. */
  async function ask(url: string, payload?: object): Promise<AcmeAnswer> {
    const signer = toSigner(await accountKey());
    const known = openAccount();
    try {
      return await post(url, { kid: await known }, signer, payload);
    } catch (error) {
      if (!(error instanceof AcmeFault) || error.type !== 'accountDoesNotExist') throw error;
      if (account === known) account = undefined;
      return post(url, { kid: await openAccount() }, signer, payload);
    }
  }

  async function post(
    url: string,
    who: { readonly kid: string } | { readonly jwk: Jwk },
    signer: Signer,
    payload?: object,
  ): Promise<AcmeAnswer> {
    for (let tries = 1; ; tries++) {
      const header = { alg: 'ES256', nonce: await takeNonce(), url, ...who };
      const answer = await wire.send('POST', url, signer.sign(header, payload));
      nonce = answer.header('replay-nonce');
      if (answer.status < 400) return answer;
      const fault = acmeFaultOf(answer, clock.now());
      if (fault.type !== 'badNonce' || tries >= NONCE_TRIES) throw fault;
    }
  }

  async function takeNonce(): Promise<string> {
    const known = nonce;
    nonce = undefined;
    if (known !== undefined) return known;
    const answer = await wire.send('HEAD', (await readDirectory()).newNonce);
    return answer.header('replay-nonce') ?? fail('the authority gave no nonce');
  }

  /** Polls a resource of this shape until `settled`. */
  async function follow<T extends z.ZodType>(
    url: string,
    shape: T,
    settled: (value: z.output<T>) => boolean,
  ): Promise<z.output<T>> {
    for (let looks = 0; looks < LOOKS; looks++) {
      const answer = await ask(url);
      const value = readAs(shape, answer);
      if (settled(value)) return value;
      await wait(Math.min(retryAfterOf(answer, clock.now()) ?? LOOK_MS, MAX_LOOK_MS));
    }
    throw new AcmeFault({ type: 'slow', detail: 'the authority did not finish in time' });
  }

  /** Places an order; a second time if the authority does not accept that it replaces a certificate. */
  async function placeOrder(name: string, replaces: string | undefined): Promise<AcmeAnswer> {
    const { newOrder, renewalInfo } = await readDirectory();
    const order = { identifiers: [{ type: 'dns', value: name }] };
    if (renewalInfo === undefined || replaces === undefined) return ask(newOrder, order);
    try {
      return await ask(newOrder, { ...order, replaces });
    } catch (error) {
      if (!(error instanceof AcmeFault) || !NOT_REPLACED.has(error.type)) throw error;
      return ask(newOrder, order);
    }
  }

  /** Proves to the authority that we have the name. */
  async function prove(url: string, show: PublishChallenge): Promise<void> {
    const { status, challenges } = readAs(authorizationShape, await ask(url));
    // The authority may reuse an earlier proof.
    if (status === 'valid') return;
    const challenge = challenges.find(({ type }) => type === 'http-01');
    if (!challenge?.url || !CHALLENGE_TOKEN.test(challenge.token ?? ''))
      throw unexpected('the authority offers no http-01 challenge');
    const { token = '' } = challenge;
    const { thumbprint } = toSigner(await accountKey());
    const hide = await show(token, `${token}.${thumbprint}`);
    try {
      await ask(challenge.url, {});
      const proof = await follow(url, authorizationShape, (found) => found.status !== 'pending');
      if (proof.status === 'valid') return;
      const error = proof.challenges.find((one) => one.error)?.error;
      throw error ? new AcmeFault(toProblem(error)) : unexpected(`the authorization is ${proof.status}`);
    } finally {
      await hide();
    }
  }

  return frozen({
    /** Orders a certificate. `replaces`: the renewal id of the one that it replaces. */
    async order(name: string, show: PublishChallenge, replaces?: string): Promise<Issued> {
      const answer = await placeOrder(name, replaces);
      const url = answer.header('location') ?? fail('the authority named no order');
      const placed = readAs(orderShape, answer);
      for (const authorization of placed.authorizations) await prove(authorization, show);
      const ready = await follow(url, orderShape, ({ status }) => status !== 'pending');
      const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      if (ready.status === 'ready')
        await ask(ready.finalize, { csr: certificateRequest(name, keys).toString('base64url') });
      const done = await follow(url, orderShape, ({ status }) => status !== 'ready' && status !== 'processing');
      if (done.status !== 'valid' || done.certificate === undefined)
        throw done.error ? new AcmeFault(toProblem(done.error)) : unexpected(`the order is ${done.status}`);
      const { text: chain } = await ask(done.certificate);
      return { chain, key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
    },
    /** The suggested renewal time of a certificate (RFC 9773); undefined if there is none. */
    async renewal(id: string): Promise<{ start: number; end: number; askAfterMs: number | undefined } | undefined> {
      const { renewalInfo } = await readDirectory();
      if (renewalInfo === undefined) return undefined;
      const answer = await wire.send('GET', `${renewalInfo}/${id}`);
      const read = answer.status === 200 ? parseJson(windowShape, answer.text) : undefined;
      if (!read) return undefined;
      const { start, end } = read.suggestedWindow;
      return { start: Date.parse(start), end: Date.parse(end), askAfterMs: retryAfterOf(answer, clock.now()) };
    },
    /** The names of the authority in CAA records; empty if unknown. */
    async caaNames(): Promise<readonly string[]> {
      return (await readDirectory()).meta?.caaIdentities ?? [];
    },
    stop: () => wire.stop(),
  });
}

interface Jwk {
  readonly crv: string;
  readonly kty: string;
  readonly x: string;
  readonly y: string;
}

type Signer = ReturnType<typeof toSigner>;

/** Signs requests with an account key (RFC 7515, ES256). */
function toSigner(pem: string) {
  const key = createPrivateKey(pem);
  const { crv = '', kty = '', x = '', y = '' } = createPublicKey(key).export({ format: 'jwk' });
  // The order of the members is that of the thumbprint (RFC 7638 section 3.2).
  const jwk: Jwk = { crv, kty, x, y };
  return {
    jwk,
    thumbprint: createHash('sha256').update(JSON.stringify(jwk)).digest('base64url'),
    /** A JWS; without a payload, a request to read (POST-as-GET). */
    sign: (header: object, payload: object | undefined) =>
      jws(header, payload, (input) => sign('sha256', input, { key, dsaEncoding: 'ieee-p1363' })),
  };
}

/** Binds our key to an account that the operator has at the authority (RFC 8555 section 7.3.4). */
function bind(jwk: Jwk, url: string, keyId: string, hmacKey: string): object {
  const secret = Buffer.from(hmacKey, 'base64url');
  const header = { alg: 'HS256', kid: keyId, url };
  return JSON.parse(jws(header, jwk, (input) => createHmac('sha256', secret).update(input).digest()));
}

function jws(header: object, payload: object | undefined, signed: (input: Buffer) => Buffer): string {
  const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const parts = { protected: encoded(header), payload: payload ? encoded(payload) : '' };
  const signature = signed(Buffer.from(`${parts.protected}.${parts.payload}`)).toString('base64url');
  return JSON.stringify({ ...parts, signature });
}

function readAs<T extends z.ZodType>(shape: T, answer: AcmeAnswer): z.output<T> {
  return parseJson(shape, answer.text) ?? fail('the authority answered something unknown');
}

const unexpected = (detail: string) => new AcmeFault({ type: 'unknown', detail });

function fail(detail: string): never {
  throw unexpected(detail);
}
