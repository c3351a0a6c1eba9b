import type { DsnRequest, Notify, RecipientDsn } from '../mail/envelope.ts';
import { REFUSALS, type Reply } from './refusal.ts';

// The parameters of RFC 3461: what a client wants to be told of a message, and how.

/** RET and ENVID of MAIL. */
export type MailDsn = Pick<DsnRequest, 'ret' | 'envid'>;

type Params = ReadonlyMap<string, string | true>;
export type Read<T> = { readonly refused: Reply } | { readonly refused?: undefined; readonly value: T };

const BAD = { refused: REFUSALS.badArgument };
const MOST_ENVID = 100; // section 4.4
const MOST_ORCPT = 500; // section 4.2
// Section 4: everything printable but + and =, which are written as + and two digits, upper case.
const XTEXT = /^(?:[!-*,-<>-~]|\+[0-9A-F]{2})+$/;
// RFC 6533 section 3: an address beyond ASCII may stand as it is, or with \x{…} for its letters, which are printable.
const UTF8_TEXT = /^(?:[!-*,-<>-~\u0080-\u{10ffff}]|\+[0-9A-F]{2})+$/u;
const ADDRESS_TYPE = /^[\w!#$%&'*/?^`{|}~-]+$/;
const PRINTABLE = /^[ -~]+$/;
const PRINTABLE_UTF8 = /^[^\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}\ufffd]+$/u;

/** Reads RET and ENVID; refuses what section 4.3 and 4.4 do not allow. */
export function readMailDsn(params: Params): Read<MailDsn> {
  const [ret, id] = [params.get('RET'), params.get('ENVID')];
  const form = ret === undefined ? null : ret === true ? undefined : toRet(ret);
  const envid =
    id === undefined ? null : id === true || id.length > MOST_ENVID || !XTEXT.test(id) ? undefined : decode(id);
  if (form === undefined || envid === undefined || (envid !== null && !PRINTABLE.test(envid))) return BAD;
  return { value: { ret: form, envid } };
}

/** Reads NOTIFY and ORCPT (section 4.1 and 4.2), the only parameters of RCPT; undefined when there is neither. */
export function readRecipientDsn(params: Params): Read<RecipientDsn | undefined> {
  if (params.size === 0) return { value: undefined };
  if ([...params.keys()].some((name) => name !== 'NOTIFY' && name !== 'ORCPT'))
    return { refused: REFUSALS.unknownParameter };
  const [wanted, original] = [params.get('NOTIFY'), params.get('ORCPT')];
  const notify = wanted === undefined ? null : wanted === true ? undefined : toNotify(wanted);
  const orcpt = original === undefined ? null : original === true ? undefined : toOriginal(original);
  return notify === undefined || orcpt === undefined ? BAD : { value: { notify, orcpt } };
}

function toRet(text: string): DsnRequest['ret'] | undefined {
  const word = text.toUpperCase();
  return word === 'FULL' || word === 'HDRS' ? word : undefined;
}

/** NEVER stands alone; of the others each comes once. */
function toNotify(text: string): readonly Notify[] | undefined {
  const words = text.toUpperCase().split(',');
  if (words.length === 1 && words[0] === 'NEVER') return ['NEVER'];
  const known = words.filter(
    (word): word is Exclude<Notify, 'NEVER'> => word === 'SUCCESS' || word === 'FAILURE' || word === 'DELAY',
  );
  return known.length === words.length && new Set(words).size === words.length ? known : undefined;
}

/** `rfc822;address`, decoded. */
function toOriginal(text: string): string | undefined {
  const semicolon = text.indexOf(';');
  const [type, value] = [text.slice(0, Math.max(semicolon, 0)), text.slice(semicolon + 1)];
  const encoded = /^utf-8$/i.test(type) ? UTF8_TEXT : XTEXT;
  if (Buffer.byteLength(text) > MOST_ORCPT || !ADDRESS_TYPE.test(type) || !encoded.test(value)) return undefined;
  const address = decode(value);
  return (encoded === XTEXT ? PRINTABLE : PRINTABLE_UTF8).test(address)
    ? `${type.toLowerCase()};${address}`
    : undefined;
}

function decode(xtext: string): string {
  return xtext.replace(/\+([0-9A-F]{2})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)));
}
