import { isPlaceholder } from '../../composition/files.ts';
import { parseAddress, toAsciiDomain } from '../../mail/addresses/address.ts';
import { isPublicSuffix, RESERVED_WORDS, type ReservedNames } from '../../mail/addresses/reserved-names.ts';
import { UsageError } from '../command.ts';
import type { Machine } from './machine.ts';

/** The value of an answer, or why it cannot be used. */
type Read = { readonly value: string } | { readonly why: string };

export interface Question {
  /** The option that answers it too. */
  readonly option: 'hostname' | 'domain' | 'email';
  readonly words: string;
  /** The default for an empty answer. */
  readonly suggestion?: string | undefined;
  read(text: string): Read;
}

interface Answering {
  readonly machine: Machine;
  /** The value of the option, if it was given. */
  readonly given: string | undefined;
  /** Whether a person can answer. */
  readonly isTerminal: boolean;
  say(text: string): void;
}

/** The answer from the option, else from the terminal, where invalid answers are asked again. */
export async function askFor(question: Question, { machine, given, isTerminal, say }: Answering): Promise<string> {
  const { option, words, suggestion, read } = question;
  if (given !== undefined) {
    const answer = read(given.trim());
    if ('why' in answer) throw new UsageError(`--${option}: ${answer.why}`);
    return answer.value;
  }
  if (!isTerminal) throw new UsageError(`missing option: --${option} (${words}); there is no terminal to ask on`);
  while (true) {
    const text = await machine.ask(suggestion === undefined ? `${words}: ` : `${words} [${suggestion}]: `);
    if (text === undefined) throw new UsageError('input ended; nothing was changed');
    const answer = read(text.trim() || (suggestion ?? ''));
    if ('value' in answer) return answer.value;
    say(`  ${answer.why}\n`);
  }
}

/** Asks for a yes; false without a terminal. */
export async function agrees(words: string, { machine, isTerminal }: Pick<Answering, 'machine' | 'isTerminal'>) {
  if (!isTerminal) return false;
  return /^y(es)?$/i.test((await machine.ask(`${words} [y/N]: `))?.trim() ?? '');
}

/** Why a text is not a public host name; undefined if it is one. */
function whyNoName(text: string, example: string): string | undefined {
  const name = toAsciiDomain(text);
  if (text === '') return `enter a name, such as ${example}`;
  if (name === undefined) return `"${text}" is not a domain name`;
  if (!name.includes('.')) return `"${text}" has no domain: enter the full name, such as ${example}`;
  if (isPlaceholder(name)) return `${name} is an example: enter the real name`;
  return isPublicSuffix(name) ? `${name}: ${RESERVED_WORDS['public-suffix']}` : undefined;
}

export function hostNameQuestion(suggestion: string | undefined): Question {
  return {
    option: 'hostname',
    words: 'Host name of this server',
    suggestion,
    read(text) {
      const why = whyNoName(text, 'mx.example.com');
      return why === undefined ? { value: toAsciiDomain(text) ?? '' } : { why };
    },
  };
}

export function domainQuestion(suggestion: string | undefined, names: Pick<ReservedNames, 'whyReserved'>): Question {
  return {
    option: 'domain',
    words: 'First domain, for mail in and out',
    suggestion,
    read(text) {
      const why = whyNoName(text, 'in.example.com');
      if (why !== undefined) return { why };
      const value = toAsciiDomain(text) ?? '';
      const reserved = names.whyReserved(value);
      if (reserved === undefined) return { value };
      if (reserved === 'ours')
        return { why: `${value} is a name of this server: enter a domain for mail addresses, such as example.com` };
      return { why: `${value}: ${RESERVED_WORDS[reserved]}` };
    },
  };
}

/** `ours`: domains whose mail this host receives, which no person would read. */
export function mailboxQuestion(ours: readonly string[]): Question {
  return {
    option: 'email',
    words: 'Your mail address, for mail to postmaster and about certificates',
    read(text) {
      if (text === '') return { why: 'enter an address' };
      const address = parseAddress(text);
      const domain = toAsciiDomain(address?.domain ?? '');
      if (!address || domain === undefined) return { why: `"${text}" is not a mail address` };
      const why = whyNoName(domain, 'example.com');
      if (why !== undefined) return { why };
      if (ours.includes(domain))
        return {
          why: `mail to ${domain} comes to this server: enter the address of a mailbox that you read on another server`,
        };
      return { value: text };
    },
  };
}
