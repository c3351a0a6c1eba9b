/** What a DKIM-Signature field says, in the form that nearly all of them have. */
export interface PlainSignature {
  readonly keyType: 'rsa' | 'ed25519';
  readonly headerForm: Form;
  readonly bodyForm: Form;
  /** d=, as it was written. */
  readonly domain: string;
  readonly selector: string;
  /** The domain of i=; undefined when there is no such tag. */
  readonly identityDomain: string | undefined;
  /** h=, in lower case. */
  readonly names: readonly string[];
  /** In base64. */
  readonly bodyHash: string;
  readonly signature: Buffer;
  /** Milliseconds since 1970. */
  readonly expires: number | undefined;
}

/** The two ways to make what is hashed of what is read (RFC 6376 section 3.4). */
export type Form = 'simple' | 'relaxed';

const FOREIGN = /[^\t\r\n -~]/;
const TAG_NAME = /^[a-z][a-z0-9_]*$/;
const ALGORITHMS: ReadonlyMap<string, PlainSignature['keyType']> = new Map([['rsa-sha256', 'rsa'], ['ed25519-sha256', 'ed25519']]);
const FORMS: ReadonlyMap<string, readonly [Form, Form]> = new Map([
  ['simple', ['simple', 'simple']], ['relaxed', ['relaxed', 'simple']], ['simple/simple', ['simple', 'simple']],
  ['simple/relaxed', ['simple', 'relaxed']], ['relaxed/simple', ['relaxed', 'simple']], ['relaxed/relaxed', ['relaxed', 'relaxed']],
]);
const DOMAIN = /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)+$/;
const SELECTOR = /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$/;
const IDENTITY = /^(?:[\w+-]+(?:\.[\w+-]+)*)?@([^@]+)$/;
const SECONDS = /^[0-9]{1,12}$/;
const LONGEST_NAME = 253;

/** Reads the value of a DKIM-Signature field; undefined when there is something that the library knows better, a fault above all. */
export function parseSignature(value: string): PlainSignature | undefined {
  const tags = parseTags(value);
  if (tags === undefined || tags.get('v') !== '1' || tags.has('l') || (tags.get('q') ?? 'dns/txt') !== 'dns/txt') return undefined;
  const keyType = ALGORITHMS.get(tags.get('a') ?? '');
  const forms = FORMS.get(tags.get('c') ?? 'simple');
  const domain = tags.get('d') ?? '';
  const selector = tags.get('s') ?? '';
  const names = toNames(tags.get('h') ?? '');
  const times = readTimes(tags.get('t'), tags.get('x'));
  const identity = readIdentity(tags.get('i'), domain);
  const [bodyHash, signature] = [tags.get('bh'), tags.get('b')];
  if (!keyType || !forms || !names || !times || !identity || bodyHash === undefined || signature === undefined) return undefined;
  if (domain.length > LONGEST_NAME || !DOMAIN.test(domain) || selector.length > LONGEST_NAME || !SELECTOR.test(selector)) return undefined;
  return {
    keyType, headerForm: forms[0], bodyForm: forms[1], domain, selector, names, bodyHash: unspaced(bodyHash),
    signature: Buffer.from(unspaced(signature), 'base64'), ...times, ...identity,
  };
}

/** A tag list (RFC 6376 section 3.2) without faults; undefined for any other. */
function parseTags(text: string): Map<string, string> | undefined {
  if (FOREIGN.test(text)) return undefined;
  const tags = new Map<string, string>();
  const pieces = text.split(';');
  for (const [place, piece] of pieces.entries()) {
    const equals = piece.indexOf('=');
    if (equals === -1) return place === pieces.length - 1 && piece.trim() === '' ? tags : undefined;
    const name = piece.slice(0, equals).trim();
    if (!TAG_NAME.test(name) || tags.has(name)) return undefined;
    tags.set(name, piece.slice(equals + 1).trim());
  }
  return tags;
}

/** From must be among the signed fields; that a signature covers another signature is rare, and read in different ways. */
function toNames(text: string): string[] | undefined {
  const names = unspaced(text).toLowerCase().split(':');
  return names.includes('from') && !names.includes('dkim-signature') ? names : undefined;
}

function readTimes(made: string | undefined, over: string | undefined): Pick<PlainSignature, 'expires'> | undefined {
  if (made !== undefined && !SECONDS.test(made)) return undefined;
  if (over === undefined) return { expires: undefined };
  if (!SECONDS.test(over) || (made !== undefined && Number(over) <= Number(made))) return undefined;
  return { expires: Number(over) * 1000 };
}

/** i= must lie within d= (RFC 6376 section 3.5). */
function readIdentity(text: string | undefined, domain: string): Pick<PlainSignature, 'identityDomain'> | undefined {
  if (text === undefined) return { identityDomain: undefined };
  const own = IDENTITY.exec(text)?.[1] ?? '';
  const within = `.${own.toLowerCase()}`.endsWith(`.${domain.toLowerCase()}`);
  return within && own.length <= LONGEST_NAME && DOMAIN.test(own) ? { identityDomain: own } : undefined;
}

function unspaced(text: string): string {
  return /\s/.test(text) ? text.replace(/\s+/g, '') : text;
}
