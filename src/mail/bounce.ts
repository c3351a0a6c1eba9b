/** What a rejection means for the recipient, in the terms and numbers of bounce events. */
export interface Bounce {
  /** soft: the address itself may be valid, and other mail may be delivered. */
  readonly kind: 'hard_bounce' | 'soft_bounce';
  readonly description: BounceWord;
  readonly bgtools_code: number;
}

/** The codes of the bounce classifier (BoogieTools) that Mandrill used. */
const CODES = {
  bad_mailbox: 10,
  general: 20,
  invalid_domain: 21,
  mailbox_full: 22,
  message_size: 23,
  mail_block: 50,
  spam_detected: 52,
  relay_denied: 54,
  transient: 70,
} as const;

type BounceWord = keyof typeof CODES;

interface Rule {
  /** Enhanced status codes (RFC 3463) without the class, as `subject.detail`, or `subject.` for a whole subject. */
  readonly codes: readonly string[];
  readonly text: RegExp;
  readonly hard: boolean;
  readonly word: BounceWord;
}

/**
 * From the most to the least certain. Servers often send 5.7.1, 5.1.1 or 5.0.0 for anything, so some rules match the
 * text before the code. Only replies that say that the address does not exist are hard: anything else may change.
 */
const BY_TEXT: readonly Rule[] = [
  {
    codes: ['1.7', '1.8'],
    text: /\bsender\b[^.]{0,40}\b(?:rejected|denied|invalid|failed|does(?: not|n't) exist|not found|unknown)/i,
    hard: false,
    word: 'general',
  },
  {
    codes: ['2.2'],
    text: /\b(?:over ?quota|quota (?:exceeded|full)|exceed(?:ed|s) (?:\w+ ){0,3}quota|(?:mail|in)?box (?:is )?(?:\w+ )?full|mailfolder is full|insufficient (?:disk |system )?(?:space|storage))/i,
    hard: false,
    word: 'mailbox_full',
  },
  {
    codes: ['2.3', '3.4'],
    text: /\b(?:message (?:size|is too|too) (?:\w+ ){0,2}(?:large|big|exceeds?)|size exceeds|exceeds? (?:\w+ ){0,4}(?:message )?size)/i,
    hard: false,
    word: 'message_size',
  },
  {
    codes: [],
    text: /\b(?:spam|junk mail|unsolicited|content (?:rejected|filter))/i,
    hard: false,
    word: 'spam_detected',
  },
  {
    codes: [],
    text: /\b(?:block(?:ed| ?list)|black ?list|denylist|dnsbl|rbl|poor reputation|bad reputation|spamhaus|dmarc|spf (?:check )?fail)/i,
    hard: false,
    word: 'mail_block',
  },
  {
    codes: [],
    text: /\b(?:relay(?:ing)? (?:access )?(?:denied|not (?:permitted|allowed))|unable to relay|not permitted to relay)/i,
    hard: false,
    word: 'relay_denied',
  },
];

const BY_CODE: readonly Rule[] = [
  {
    codes: ['1.1', '1.3', '1.6', '2.1', '1.0'],
    text: /\b(?:(?:user|mailbox|recipient|address|account)\b[^.]{0,60}\b(?:unknown|not found|does(?: not|n't) exist|disabled|unavailable|rejected|invalid|inactive)|(?:no such|unknown|invalid|bad destination) (?:local )?(?:user|mailbox|recipient|address|account|person)|does(?: not|n't) have an? \S+ account)/i,
    hard: true,
    word: 'bad_mailbox',
  },
  {
    codes: ['1.2', '1.10', '4.4'],
    text: /\b(?:(?:host|domain)(?: name)? (?:not found|does(?: not|n't) exist|unknown)|unrouteable|no such domain|null mx)/i,
    hard: true,
    word: 'invalid_domain',
  },
  { codes: ['7.'], text: /\b(?:policy|access denied|not (?:accept|authori[sz])ed)/i, hard: false, word: 'mail_block' },
];

/**
 * Classifies the final reply for a message. `code` is the SMTP reply code, or 0 if a report had only an enhanced one;
 * `diag` is the text with its enhanced code, on one line. Servers may send texts of any length: only the first thousand
 * characters are used.
 */
export function classifyReply(code: number, diag: string): Bounce {
  const text = diag.slice(0, 1000);
  const enhanced = /(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.])/.exec(text);
  const status = enhanced ? `${enhanced[2]}.${enhanced[3]}` : '';
  const temporary = enhanced ? enhanced[1] === '4' : code >= 400 && code < 500;
  const rule = BY_TEXT.find((one) => one.text.test(text) || one.codes.includes(status)) ?? byCode(status, text);
  if (temporary) return toBounce(false, rule?.word === 'mailbox_full' ? 'mailbox_full' : 'transient');
  if (rule) return toBounce(rule.hard, rule.word);
  // RFC 5321 section 4.2.3: these codes are about the mailbox, unless an enhanced code says otherwise.
  const aboutMailbox = status === '' && [550, 551, 553].includes(code);
  return aboutMailbox ? toBounce(true, 'bad_mailbox') : toBounce(false, 'general');
}

/** Matches by status code if it is a specific one, else by text. */
function byCode(status: string, text: string): Rule | undefined {
  const subject = status.slice(0, status.indexOf('.') + 1);
  const coded =
    status === '' ? undefined : BY_CODE.find(({ codes }) => codes.includes(status) || codes.includes(subject));
  return coded ?? BY_CODE.find((rule) => rule.text.test(text));
}

function toBounce(hard: boolean, description: BounceWord): Bounce {
  return { kind: hard ? 'hard_bounce' : 'soft_bounce', description, bgtools_code: CODES[description] };
}
