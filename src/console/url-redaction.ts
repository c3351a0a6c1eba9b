import { createCipheriv, createDecipheriv, createHmac } from 'node:crypto';
import { Refusal } from '../api/errors.ts';
import type { Answer, Operation } from '../api/operation.ts';
import { type Params, paramsOf } from '../api/requests/parameters.ts';
import { mapPages } from '../api/streamed-lists.ts';
import { frozen } from '../base/frozen.ts';
import type { Role } from '../store/rows/people.ts';
import { Denial } from './denial.ts';
import type { Permissions } from './roles.ts';

// Redacts answers for roles that may not see settings. User and query of a URL are often secrets, and URLs occur
// everywhere: in records, errors and actions. So all texts of an answer are searched for URLs, whatever the operation.

export type Redactors = ReturnType<typeof createRedactors>;
export type Redactor = ReturnType<typeof createRedactor>;

export function createRedactors(deps: {
  readonly permissions: Pick<Permissions, 'may'>;
  readonly tokenSecret: { read(): Promise<string> };
}) {
  const { permissions, tokenSecret } = deps;
  return frozen({
    /** Undefined if the role sees everything. */
    async for(role: Role, account: string): Promise<Redactor | undefined> {
      if (permissions.may(role, 'settings')) return undefined;
      return createRedactor(createUrlCipher(await tokenSecret.read(), account), permissions.may(role, 'mail'));
    },
  });
}

/** Redacts answers for one role and account. */
function createRedactor(seal: UrlCipher, seesMail: boolean) {
  const redact = (value: unknown) => eachText(value, (text) => hideUrls(text, seal));
  const reveal = (value: unknown) => eachText(value, (text) => revealUrls(text, seal));

  function withoutMailFields(record: unknown, { mailFields }: Operation): unknown {
    if (seesMail || mailFields.length === 0 || !isObject(record)) return record;
    const left = mailFields.map((name) => [name, Array.isArray(record[name]) ? [] : null] as const);
    return { ...record, ...Object.fromEntries(left) };
  }

  function redactAnswer(answer: Answer, operation: Operation): Answer {
    // Only operations that show content answer with text.
    if ('text' in answer) throw new Denial('Not_Allowed', 'Your role does not allow this.');
    const covered = (record: unknown) => redact(withoutMailFields(record, operation));
    if ('record' in answer) return { ...answer, record: covered(answer.record) };
    return { ...answer, pages: mapPages(answer.pages, (page) => page.map(covered)) };
  }

  return frozen({
    /** Replaces user, query and fragment of each URL in the value by `?hidden=…`. */
    redact,
    /** Wraps an operation: restores the URLs in its parameters, and redacts its answer. */
    wrap: (operation: Operation): Operation =>
      frozen({
        ...operation,
        async run(params, parts) {
          try {
            return redactAnswer(await operation.run(uncovered(params, reveal), parts), operation);
          } catch (error) {
            throw error instanceof Refusal ? redactRefusal(error, redact) : error;
          }
        },
      }),
  });
}

function uncovered(params: Params, reveal: (value: unknown) => unknown): Params {
  return {
    ...params,
    get: (name) => reveal(params.get(name)),
    of: (names, anyText) => paramsOf(Object(reveal(params.of(names, anyText)))).of(names, anyText),
  };
}

const FAULTS = /^(Validation error: )(\{.*\})$/s;

/** The faults of parameters are JSON in a text. */
function redactRefusal(refused: Refusal, hide: (value: unknown) => unknown): Refusal {
  const { name, message, code, status, retryAfterS } = refused;
  const [, words = '', faults] = FAULTS.exec(message) ?? [];
  const text = faults === undefined ? hide(message) : words + JSON.stringify(hide(JSON.parse(faults)));
  return new Refusal(name, String(text), code, status, retryAfterS);
}

/** Whether it is a JSON object. */
function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

/** Changes each text in the value; names of fields stay. */
function eachText(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((one) => eachText(one, change));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, eachText(one, change)]));
}

/** A URL up to the next blank, without the punctuation after it. */
const IN_TEXT = /[a-z][a-z0-9+.-]{0,30}:\/\/[^\s]*[^\s.,;:!)\]}>'"]/gi;
/** Scheme, user, host with path, and the rest. */
const PARTS = /^([^:]+:\/\/)(?:([^/?#\\]*)@)?([^?#]*)(.*)$/s;
const HIDDEN = /([a-z][a-z0-9+.-]{0,30}:\/\/)([^\s?#@]+)\?hidden=([\w-]+)/gi;

function hideUrls(text: string, seal: UrlCipher): string {
  if (!text.includes('://')) return text;
  return text.replace(IN_TEXT, (url) => {
    const [, scheme = '', user, hostPath = '', rest = ''] = PARTS.exec(url) ?? [];
    if (user === undefined && rest === '') return url;
    const hidden = JSON.stringify([user ?? null, rest]);
    return `${scheme}${hostPath}?hidden=${seal.encrypt(hidden, scheme + hostPath)}`;
  });
}

function revealUrls(text: string, seal: UrlCipher): string {
  if (!text.includes('?hidden=')) return text;
  return text.replace(HIDDEN, (url, scheme: string, hostPath: string, closed: string) => {
    const hidden = seal.decrypt(closed, scheme + hostPath);
    if (hidden === undefined) return url;
    const [user, rest] = JSON.parse(hidden);
    return `${scheme}${user === null ? '' : `${user}@`}${hostPath}${rest}`;
  });
}

const NONCE_BYTES = 12;
const TAG_BYTES = 16;

type UrlCipher = ReturnType<typeof createUrlCipher>;

/**
 * Encrypts texts deterministically, so that a redacted URL still tells its endpoint from others. AES-GCM with a nonce
 * derived from the text, as in SIV modes (RFC 5297): it reveals only which texts are equal.
 */
function createUrlCipher(secret: string, account: string) {
  const derive = (purpose: string) => createHmac('sha256', secret).update(`console URL ${purpose}`).digest();
  const [key, nonceKey] = [derive('key'), derive('nonce')];
  const about = (url: string) => Buffer.from(JSON.stringify([account, url]));
  return {
    encrypt(text: string, url: string): string {
      const mac = createHmac('sha256', nonceKey).update(about(url)).update(text).digest();
      const nonce = mac.subarray(0, NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(about(url));
      const closed = [cipher.update(text, 'utf8'), cipher.final()];
      return Buffer.concat([nonce, ...closed, cipher.getAuthTag()]).toString('base64url');
    },
    /** Undefined if it was not encrypted for this account and this URL. */
    decrypt(closed: string, url: string): string | undefined {
      const bytes = Buffer.from(closed, 'base64url');
      if (bytes.length < NONCE_BYTES + TAG_BYTES) return undefined;
      const nonce = bytes.subarray(0, NONCE_BYTES);
      const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES });
      decipher.setAAD(about(url)).setAuthTag(bytes.subarray(-TAG_BYTES));
      try {
        const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
        return Buffer.concat([text, decipher.final()]).toString();
      } catch {
        return undefined; // forged
      }
    },
  };
}
