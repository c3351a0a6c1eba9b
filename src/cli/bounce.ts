import { readFileSync } from 'node:fs';
import { errorText } from '../base/errors.ts';
import { classifyReply, ruleInWords } from '../mail/bounce.ts';
import { classifyReturned, type ReturnClassification } from '../returns/bounce-message.ts';
import { type Command, type Invocation, UsageError } from './command.ts';

/** The verdict on a bounce, as `--json` prints it. */
interface Explained {
  /** hard_bounce, soft_bounce, deferral, spam, unsub, or nothing. */
  readonly event: string;
  readonly description: string | null;
  /** The rule that decided; null if none had to. */
  readonly rule: string | null;
  readonly why: string;
  /** The text that was classified; null without one. */
  readonly diag: string | null;
}

export const bounceExplain: Command = {
  args: '[FILE]',
  options: {
    reply: { value: 'TEXT', help: 'explain this reply of a server instead, for example "550 5.1.1 No such user"' },
    recipient: { value: 'ADDRESS', help: 'the recipient of the message that bounced' },
    sender: { value: 'ADDRESS', help: 'MAIL FROM of the bounce (default: empty)' },
  },
  notes:
    'Nothing is recorded. Only a hard bounce means that the address does not exist. A hard bounce suppresses the ' +
    'address for a week, a soft bounce for a day.',
  async run(call) {
    const reply = call.text('reply');
    const explained = reply === undefined ? ofMail(call) : ofReply(reply);
    call.print([explained], () => toText(explained));
  },
};

function ofReply(reply: string): Explained {
  const [, code, text] = /^([245]\d\d)[ -]?(.*)$/s.exec(reply.trim()) ?? [];
  if (code === undefined || text === undefined)
    throw new UsageError('--reply needs a reply with its code, for example "550 5.1.1 No such user"');
  return toExplained('failed', classifyReply(Number(code), text), reply.trim());
}

function ofMail(call: Invocation): Explained {
  const bytes = readMail(call.words[0]);
  const facts = { email: call.text('recipient') ?? null, sender: call.text('sender') ?? '' };
  return ofJudgement(classifyReturned('bounce', bytes, facts));
}

function ofJudgement(said: ReturnClassification): Explained {
  switch (said.kind) {
    case 'failed':
    case 'delayed':
      return toExplained(said.kind, said.bounce, said.diag);
    case 'spam':
      return { event: 'spam', description: null, rule: null, why: 'A complaint (RFC 5965).', diag: said.diag };
    case 'unsub':
      return { event: 'unsub', description: null, rule: null, why: 'A request to unsubscribe.', diag: null };
    case 'nothing':
      return { event: 'nothing', description: null, rule: null, why: said.why, diag: null };
  }
}

function toExplained(
  kind: 'failed' | 'delayed',
  { kind: event, description, rule }: ReturnType<typeof classifyReply>,
  diag: string,
): Explained {
  return { event: kind === 'delayed' ? 'deferral' : event, description, rule, why: ruleInWords(rule), diag };
}

function readMail(file: string | undefined): Buffer {
  try {
    const bytes = readFileSync(file === undefined || file === '-' ? 0 : file);
    // Mail in files usually has LF line endings.
    return Buffer.from(bytes.toString('latin1').replace(/\r?\n/g, '\r\n'), 'latin1');
  } catch (error) {
    throw new UsageError(`cannot read ${file ?? 'standard input'}: ${errorText(error)}`);
  }
}

function toText({ event, description, rule, why, diag }: Explained): string {
  const head = [event.replace('_', ' '), description && `(${description})`].filter(Boolean).join(' ');
  return [`${head}${rule === null ? '' : `, by the rule "${rule}"`}`, why, diag && `Diagnosis: ${diag}`]
    .filter(Boolean)
    .join('\n')
    .concat('\n');
}
