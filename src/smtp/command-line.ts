import { type Address, parseAddress } from '../mail/addresses/address.ts';
import type { DsnRequest, Notify, RecipientDsn } from '../mail/addresses/envelope.ts';
import { REFUSALS, type Reply } from './replies.ts';

// The grammar of command lines (RFC 5321 section 4.1): verb, path and parameters. Independent of the session.

/** A refusal, or the parsed value. */
type ParsedArgument<T> = { readonly refused: Reply } | { readonly refused?: undefined; readonly value: T };

/** Splits a command line into its verb, in upper case, and the rest. */
export function splitCommand(line: string): { readonly verb: string; readonly rest: string } {
  const end = line.indexOf(' ');
  if (end < 0) return { verb: line.toUpperCase(), rest: '' };
  return { verb: line.slice(0, end).toUpperCase(), rest: line.slice(end + 1).trim() };
}

/** RET and ENVID of MAIL (RFC 3461). */
type MailDsn = Pick<DsnRequest, 'ret' | 'envid'>;

/** A parsed MAIL command. */
export interface MailCommand {
  /** The reverse-path, empty for the null sender. */
  readonly mailFrom: string;
  /** The client asked for SMTPUTF8. */
  readonly utf8: boolean;
  readonly dsn: MailDsn;
  /** The size that the client declared (RFC 1870); undefined if it did not. */
  readonly size: number | undefined;
}

/** Parses the arguments of MAIL. `offersAuth`: this server offers AUTH, so it must accept that parameter. */
export function readMail(
  rest: string,
  limits: { readonly maxMessageBytes: number; readonly offersAuth: boolean },
): ParsedArgument<MailCommand> {
  const command = parsePath('FROM', rest);
  if (typeof command === 'string') return { refused: command === 'path' ? REFUSALS.badSender : REFUSALS.badArgument };
  const { path, params } = command;
  if (path !== '' && !parseAddress(path)) return { refused: REFUSALS.badSender };
  const wrong = params.size === 0 ? undefined : wrongMailParameter(params, limits);
  if (wrong) return { refused: wrong };
  const utf8 = params.has('SMTPUTF8');
  if (!utf8 && NOT_ASCII.test(path)) return { refused: REFUSALS.needsUtf8 };
  const dsn = readMailDsn(params);
  return dsn.refused ? dsn : { value: { mailFrom: path, utf8, dsn: dsn.value, size: sizeIn(params) } };
}

function sizeIn(params: Params): number | undefined {
  const size = params.get('SIZE');
  return size === undefined ? undefined : Number(size);
}

/** A parsed RCPT command. */
interface RcptCommand {
  readonly address: Address;
  readonly dsn: RecipientDsn | undefined;
}

/** Parses the arguments of RCPT. `utf8`: the transaction uses SMTPUTF8. */
export function readRcpt(rest: string, utf8: boolean, hostname: string): ParsedArgument<RcptCommand> {
  const command = parsePath('TO', rest);
  if (typeof command === 'string')
    return { refused: command === 'path' ? REFUSALS.badRecipient : REFUSALS.badArgument };
  const dsn = readRecipientDsn(command.params);
  if (dsn.refused) return dsn;
  // RFC 5321 section 4.5.1: `postmaster` without a domain is the postmaster of this hostname.
  const path = /^postmaster$/i.test(command.path) ? `${command.path}@${hostname}` : command.path;
  const address = parseAddress(path);
  if (!address) return { refused: REFUSALS.badRecipient };
  return !utf8 && NOT_ASCII.test(command.path)
    ? { refused: REFUSALS.needsUtf8 }
    : { value: { address, dsn: dsn.value } };
}

/** Returns the path of a MAIL (`FROM`) or RCPT (`TO`) command; undefined on a syntax error. */
export function pathIn(keyword: 'FROM' | 'TO', rest: string): string | undefined {
  const command = parsePath(keyword, rest);
  return typeof command === 'string' ? undefined : command.path;
}

type Params = ReadonlyMap<string, string | true>;

const NOT_ASCII = /[\u0080-\u{10ffff}]/u;
// A quoted string may contain angle brackets and spaces. The two branches share no first character, so this is linear.
// Some clients leave the brackets out.
const PATH = /^[ \t]*(?:<((?:"(?:[^"\\]|\\.)*"|[^<>"\\ \t])*)>|([^<>"\\ \t]+))(?:[ \t]+(.*))?$/;
// RFC 5321 section 4.1.2 esmtp-param; RFC 6531 allows non-ASCII values.
const PARAM = /^([a-z0-9][a-z0-9-]*)(?:=([^\s=\p{Cc}]+))?$/iu;
// RFC 5321 section 4.1.2 A-d-l, the hosts of a source route. Their names are not validated further.
const SOURCE_ROUTE = /^@[^@,:\s"<>[\]\\]+(?:,@[^@,:\s"<>[\]\\]+)*:(?=.+@)/;
const NONE: Params = new Map();

/**
 * Returns the path without angle brackets, and the parameters with upper-case names; `path` on a syntax error of the
 * path, `params` if a parameter is malformed or repeated. A space after the colon is accepted, as many clients send
 * one. A source route is accepted and ignored (RFC 5321 section 4.1.2 and appendix C): only the mailbox after it
 * counts.
 */
function parsePath(
  keyword: 'FROM' | 'TO',
  rest: string,
): { readonly path: string; readonly params: Params } | 'path' | 'params' {
  const colon = rest.indexOf(':');
  if (rest.slice(0, colon).trimEnd().toUpperCase() !== keyword) return 'path';
  const parts = PATH.exec(rest.slice(colon + 1));
  const path = parts?.[1] ?? parts?.[2];
  if (path === undefined) return 'path';
  const params = parseParams(parts?.[3]);
  return params === undefined ? 'params' : { path: path.replace(SOURCE_ROUTE, ''), params };
}

function parseParams(text: string | undefined): Params | undefined {
  if (text === undefined || text === '') return NONE;
  const params = new Map<string, string | true>();
  for (const word of text.split(/[ \t]+/)) {
    const parts = PARAM.exec(word);
    const name = parts?.[1]?.toUpperCase();
    if (name === undefined || params.has(name)) return undefined;
    params.set(name, parts?.[2] ?? true);
  }
  return params;
}

/** The refusal of an invalid SIZE (RFC 1870), BODY (RFC 6152) or SMTPUTF8 (RFC 6531), or of an unknown parameter. */
function wrongMailParameter(
  params: Params,
  { maxMessageBytes, offersAuth }: { readonly maxMessageBytes: number; readonly offersAuth: boolean },
): Reply | undefined {
  for (const [name, value] of params) {
    switch (name) {
      case 'SIZE':
        if (value === true || !/^\d{1,20}$/.test(value)) return REFUSALS.badArgument;
        if (Number(value) > maxMessageBytes) return REFUSALS.tooBig;
        break;
      case 'BODY':
        if (value === true || !/^(?:7BIT|8BITMIME)$/i.test(value)) return REFUSALS.badArgument;
        break;
      case 'SMTPUTF8':
        if (value !== true) return REFUSALS.badArgument;
        break;
      case 'AUTH':
        // The original submitter (RFC 4954 section 5) is ignored.
        if (!offersAuth || value === true) return REFUSALS.unknownParameter;
        break;
      case 'RET':
      case 'ENVID':
        break; // readMailDsn
      default:
        return REFUSALS.unknownParameter;
    }
  }
  return undefined;
}

// The DSN parameters of RFC 3461.

const BAD = { refused: REFUSALS.badArgument };
const MAX_ENVID = 100; // section 4.4
const MAX_ORCPT = 500; // section 4.2
// Section 4: printable characters; + and = are encoded as + and two upper-case hex digits.
const XTEXT = /^(?:[!-*,-<>-~]|\+[0-9A-F]{2})+$/;
// RFC 6533 section 3: non-ASCII characters stand as they are or as \x{…}, which is printable ASCII.
const UTF8_TEXT = /^(?:[!-*,-<>-~\u0080-\u{10ffff}]|\+[0-9A-F]{2})+$/u;
const ADDRESS_TYPE = /^[\w!#$%&'*/?^`{|}~-]+$/;
const PRINTABLE = /^[ -~]+$/;
const PRINTABLE_UTF8 = /^[^\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}\ufffd]+$/u;

/** Parses RET and ENVID (sections 4.3 and 4.4). */
function readMailDsn(params: Params): ParsedArgument<MailDsn> {
  const [ret, id] = [params.get('RET'), params.get('ENVID')];
  const form = ret === undefined ? null : ret === true ? undefined : toRet(ret);
  const envid =
    id === undefined ? null : id === true || id.length > MAX_ENVID || !XTEXT.test(id) ? undefined : decodeXtext(id);
  if (form === undefined || envid === undefined || (envid !== null && !PRINTABLE.test(envid))) return BAD;
  return { value: { ret: form, envid } };
}

/** Parses NOTIFY and ORCPT (sections 4.1 and 4.2), the only parameters of RCPT; undefined if there is neither. */
function readRecipientDsn(params: Params): ParsedArgument<RecipientDsn | undefined> {
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

/** NEVER must stand alone; each other keyword may appear once. */
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
  if (Buffer.byteLength(text) > MAX_ORCPT || !ADDRESS_TYPE.test(type) || !encoded.test(value)) return undefined;
  const address = decodeXtext(value);
  return (encoded === XTEXT ? PRINTABLE : PRINTABLE_UTF8).test(address)
    ? `${type.toLowerCase()};${address}`
    : undefined;
}

function decodeXtext(text: string): string {
  return text.replace(/\+([0-9A-F]{2})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)));
}
