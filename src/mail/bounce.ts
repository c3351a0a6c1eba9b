import { pattern } from '../base/pattern.ts';

/** What a rejection means for the recipient, in the terms and numbers of bounce events. */
export interface Bounce {
  /** soft: the address itself may be valid, and other mail may be delivered. */
  readonly kind: 'hard_bounce' | 'soft_bounce';
  readonly description: BounceWord;
  readonly bgtools_code: number;
  /** The rule that decided: its name in the table below, `temporary` or `unclear`. */
  readonly rule: string;
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
  readonly name: string;
  /** The service that answers so, if it is a particular one; for `postern bounce explain`. */
  readonly from?: string;
  /** Words of the reply. */
  readonly text?: RegExp;
  /** Enhanced status codes (RFC 3463) without the class, as `subject.detail`, or `subject.` for a whole subject. */
  readonly codes?: readonly string[];
  readonly hard?: true;
  readonly word: BounceWord;
  /** One sentence for people. */
  readonly why: string;
}

/** Words for the recipient's mailbox, and phrases for one that does not exist. */
const BOX = pattern()`
  (?:e-?mail ?box|mailbox|mail ?drop|user(?:name|\(s\)| ?id)?|recipients?(?:\(s\))?|addressee|account
  |(?:e-?mail )?address|local[- ]part|alias|person|destinataire|utilisateur|compte|bo[iî]te|usuario|destinatario
  |buz[oó]n|usu[aá]rio|destinat[aá]rio|benutzer|empf[aä]nger|postfach|utente|casella)
`;
const GONE = pattern()`
  (?:unknown|not (?:be )?(?:found|known|exist|listed|valid|recognized)|does(?: not|n't|nt) exist|do not exist
  |non-?existent|no longer (?:exists|available|valid|active|here|employed)|in-?valid|not a valid
  |is not (?:a )?(?:valid|known|local)|no such|not in (?:my|our) (?:list|directory)|inconnu|invalide|inexistant
  |n'existe pas|desconocido|no existe|inexistente|n[aã]o existe|desconhecido|unbekannt|existiert nicht|nicht gefunden
  |sconosciuto|non esiste|inesistente)
`;
const CLOSED = pattern()`
  (?:disabled|inactive|deactivated|suspended|closed|terminated|cancell?ed|expired|deleted|removed|discontinued
  |d[eé]sactiv[eé]|ferm[eé]|deaktiviert|gesperrt|disabilitat[oa]|deshabilitad[oa]|desativad[oa])
`;

/**
 * What replies mean, the most certain first: the first rule whose words or whose code are in the reply decides. Codes
 * are less certain than words, because servers send 5.7.1, 5.1.1 or 5.0.0 for anything. Only evidence about the mailbox
 * or its domain makes a bounce hard: words that say that it does not exist or was closed, or a code that means nothing
 * else. A reply that no rule knows is unclear, and soft: the address is tried again tomorrow, whereas a wrong hard
 * bounce loses a recipient for a week.
 *
 * Sources: RFC 3463 and the IANA registry of enhanced codes, RFC 5321 section 4.2, RFC 7505; the postmaster pages of
 * Google, Microsoft, Yahoo, GMX, Apple, Yandex and Tencent; replies of Postfix, Exim, sendmail, qmail, Exchange,
 * Mimecast, Proofpoint and Barracuda. docs/proof.md has the agreement with collections of real bounces.
 */
const RULES: readonly Rule[] = [
  // About the sender: says nothing about the recipient, though it often names "address", "user" or "domain".
  {
    name: 'sender-refused',
    text: pattern('i')`
      \b(?:sender|mail ?from|from address|return[- ]path|envelope[- ]from|badmailfrom)\b(?! domain name system)
      [^.\n]{0,60}?
      \b(?:rejected|denied|invalid|blocked|fail(?:ed|s|ure)?|verif\w+|does(?: not|n't) exist
      |not (?:found|owned|allowed|permitted|exist|accepted|valid)|unknown|undeliverable|has no|refused|blacklist|list)
      |\b(?:blocked senders?|sender (?:verify|verification)|bad (?:outbound )?sender|verification failed for
      |(?:valid|invalid) from:|from: domain|not permitted to send
      |does not have permissions? to send|not authori[sz]ed to send|blocked your (?:address|e-?mail)
      |domain of sender)\b
    `,
    codes: ['1.7', '1.8'],
    word: 'general',
    why: 'The receiver rejects the sender address.',
  },
  {
    name: 'client-name',
    text: pattern('i')`
      \b(?:reverse (?:dns|hostname|mapping|lookup)|rdns|ptr (?:record|resource)
      |(?:valid|has no|a|missing|have a) ptr\b|helo|ehlo|hostname of (?:the )?client|resolve your)
    `,
    codes: ['7.25'],
    word: 'mail_block',
    why: 'The receiver rejects the DNS records or the HELO name of the sending host.',
  },
  // Sender authentication and what follows from it.
  {
    name: 'authentication',
    text: pattern('i')`
      \b(?:spf\b|dkim\b|dmarc\b|openspf|sender policy framework|domain ?keys|unauthenticated
      |authentication (?:required|level|failed|check)|smtp auth|level of authentication|not pass authentication)
    `,
    codes: ['7.20', '7.21', '7.22', '7.23', '7.24', '7.26', '7.30', '7.509', '7.515'],
    word: 'mail_block',
    why: 'The message failed SPF, DKIM or DMARC at the receiver.',
  },
  {
    name: 'mailbox-full',
    text: pattern('i')`
      \b(?:over ?(?:the )?(?:disk )?quota|quota (?:\w+ )?(?:exceeded|full|limit)
      |exceed(?:ed|s|ing)? (?:\w+ ){0,4}(?:quota|storage)|(?:mail|in)?(?:box|folder) (?:is |has )?(?:\w+ )?full\b
      |(?:mail|in)box size|mailbox (?:\S+ )?(?:for \S+ )?is full|full mailbox
      |insufficient (?:disk |system )?(?:space|storage)|(?:not enough|out of|no) (?:\w+ )?(?:disk |storage )?space
      |too many messages (?:in|on)|mailbox has exceeded|user has exhausted|bo[iî]te pleine|postfach (?:ist )?voll
      |casilla llena|buz[oó]n lleno|casella piena)
    `,
    codes: ['2.2'],
    word: 'mailbox_full',
    why: 'The mailbox is full.',
  },
  {
    name: 'message-size',
    text: pattern('i')`
      \b(?:(?:message|mail|e-?mail|data) (?:size|is too|too) ?(?:\w+ ){0,2}(?:large|big|long|exceeds?|limit)
      |size (?:limit )?exceed|exceed(?:s|ed)? (?:\w+ ){0,4}(?:message |maximum )?size
      |too (?:large|big) (?:message|for))
    `,
    codes: ['2.3', '3.4'],
    word: 'message_size',
    why: 'The message is too large for the receiver.',
  },
  {
    name: 'rate',
    text: pattern('i')`
      \b(?:too many|rate ?limit|frequency|throttl
      |(?:max(?:imum)?|limit)\w* (?:\w+ ){0,4}(?:per|an?) (?:hour|day|minute)
      |exceeded the (?:max|limit)|mails? per hour|receiving (?:mail|messages|e-?mail) (?:at|too))
    `,
    word: 'mail_block',
    why: 'The receiver limits the rate of mail.',
  },
  {
    name: 'content',
    text: pattern('i')`
      \b(?:spam(?!haus|cop)|junk ?mail|unsolicited|bulk (?:mail|message|e-?mail)|content (?:rejected|filter|policy|is)
      |message content|prohibited|virus|malware|phish|infected|banned (?:content|attachment|file)|dt:spm)\b
    `,
    word: 'spam_detected',
    why: 'The receiver rejects the content of the message.',
  },
  {
    name: 'reputation',
    text: pattern('i')`
      \b(?:block(?:ed| ?list|ing)?\b|black ?list|deny ?list|dnsbl|rbl\b|reputation|spamhaus|spamcop|sorbs
      |barracudacentral|senderscore|(?<!not )listed (?:in|at|on|by)|banned|ip (?:address )?(?:\S+ )?is not|your ip\b
      |client host (?:rejected|\S+ blocked)|network is on|access denied, traffic)
    `,
    word: 'mail_block',
    why: 'The receiver blocks the sending address or network.',
  },
  {
    name: 'relay',
    text: pattern('i')`
      \brelay(?:ing)?\b[^.\n]{0,40}\b(?:denied|not (?:permitted|allowed)|disallowed|prohibited|refused)
      |\b(?:unable|not permitted|not allowed|no permission|cannot|refus\w+|denied) to relay|\bwe do not relay
      |not (?:one of )?my (?:rcpthosts|domains?)|rcpthosts
    `,
    word: 'relay_denied',
    why: 'The receiver does not accept mail for this domain. The MX record may point to the wrong host.',
  },
  {
    name: 'gave-up',
    text: pattern('i')`
      \b(?:connection (?:timed out|refused|reset)|no route to host|retry time ?(?:out)?|operation timed out
      |multiple retries|giving up|not reachable|message expired|envelope expired|delivery time expired
      |in the queue too long|could not deliver for|not delivered within|failing for a long time|network error
      |host or domain name lookup failed|not found, try again)
    `,
    word: 'transient',
    why: 'The server could not be reached until the retries ended.',
  },
  {
    name: 'temporarily-disabled',
    text: /\btemporar(?:y|ily)\b|\btry (?:again )?later\b|\b(?:account|mailbox|user) (?:is )?on (?:hold|vacation)/i,
    word: 'general',
    why: 'The receiver says that the problem is temporary.',
  },
  {
    name: 'recipient-preferences',
    text: /\brecipient preferences|\brefused by (?:the )?recipient\b|\brecipient(?:'s)? (?:has )?block/i,
    word: 'mail_block',
    why: 'The recipient has chosen not to receive the message.',
  },
  {
    name: 'local-failure',
    text: /\bcould(?:n't| not) create\b|\bcan(?:'t|not) create (?:user )?output\b|\bpermission denied\b/i,
    word: 'general',
    why: 'The server could not write to the mailbox.',
  },
  // About the mailbox.
  {
    name: 'moved',
    text: pattern('i')`
      \b(?:user|recipient|mailbox|address|account) (?:has |is )?(?:moved|changed)|\bno longer (?:at|with|works?)\b
    `,
    codes: ['1.6'],
    hard: true,
    word: 'bad_mailbox',
    why: 'The recipient has moved.',
  },
  {
    name: 'recipient-edge-block',
    from: 'Microsoft 365',
    text: /\b5\.4\.1\b[^\n]{0,100}recipient address(?:es)? rejected ?: access denied/i,
    hard: true,
    word: 'bad_mailbox',
    why: 'Microsoft 365 does not know the recipient (directory-based edge blocking).',
  },
  {
    name: 'domain-unknown',
    text: pattern('i')`
      \b(?:host|domain)(?: name)?(?: \S+)? (?:is )?(?:not found|does(?: not|n't) exist|unknown)
      |\b(?:no such|unknown|bad destination|nonexistent) (?:host|domain)\b|\bunrouteable|\bname or service not known
      |\bhost or domain name not found|\b(?:name|dns) (?:server|service)[^.\n]{0,40}(?:no data known|not found)
      |\bnxdomain|\bnull ?mx|\btakes? no mail|\bdomain (?:does not|doesn't) accept mail|\bthere is no host
      |\billegal host/domain|\b5\.4\.4 invalid domain|\bcouldn't find (?:any|a) (?:host|mail exchanger)
      |\b(?:mx|host) (?:record )?(?:\S+ )?not found|\bno mx record|\bunknown host|\bhost does not accept mail
      |\bindicated no smtp service
    `,
    codes: ['1.2', '1.10'],
    hard: true,
    word: 'invalid_domain',
    why: 'The domain of the recipient does not exist or accepts no mail.',
  },
  {
    name: 'mailbox-unknown',
    text: pattern('iu')`
      \b${BOX}\b[^.\n]{0,60}?(?<![\w-])${GONE}(?![\w-])(?! error)
      |(?<![\w-])(?:no such|unknown|in-?valid|nonexistent|non-existent|bad|no) (?:\S+ )?${BOX}\b(?! error)
      |(?:does(?: not|n't)|do not) have (?:an? )?(?:\S+ )?(?:account|mailbox|user)
      |\bno mailbox (?:here|by|found|with)|\bno one (?:here )?by that name|\bnot (?:listed in|our customer|a local user)
      |\b${BOX}\b[^.\n]{0,60}?\bundeliverable
      |\b(?:RecipientNotFound|NoSuchUser|RESOLVER\.ADR\.RecipNotFound|ExRecipNotFound)
      |\binvalid final delivery userid|ディレクトリの?(?:リスト)?には?(?:ありません|見つかりません)
      |(?:ユーザー?|宛先|メールアドレス)[^\n]{0,60}(?:存在しません|見つかりません)
      |\bunknown or illegal (?:user|alias)|\balias\w* (?:not|un)\w*|\bnot a known user|\buser unknown
    `,
    hard: true,
    word: 'bad_mailbox',
    why: 'The mailbox does not exist.',
  },
  {
    name: 'mailbox-closed',
    text: pattern('iu')`
      \b${BOX}\b(?! (?:rejected|denied))[^.\n]{0,60}?(?<![\w-])${CLOSED}(?![\w-])
      |\b${CLOSED} (?:user|account|mailbox|recipient)
    `,
    hard: true,
    word: 'bad_mailbox',
    why: 'The mailbox was closed.',
  },
  {
    name: 'mailbox-code',
    codes: ['1.1'],
    hard: true,
    word: 'bad_mailbox',
    why: 'The code says that the mailbox does not exist (RFC 3463).',
  },
  {
    name: 'policy',
    text: /\b(?:polic(?:y|ies)|access denied|not (?:accept|authori[sz])(?:ed)?|not permitted|restrict)/i,
    codes: ['7.'],
    word: 'mail_block',
    why: 'A policy of the receiver rejects the message.',
  },
];

const UNCLEAR = {
  name: 'unclear',
  why: 'The reply does not say whether the mailbox exists, so it counts as a soft bounce.',
};
const TEMPORARY = { name: 'temporary', why: 'A temporary failure: the address may exist.' };

/** The sentence of a rule, for people; '' for a name that there is not. */
export function ruleInWords(name: string): string {
  return [...RULES, UNCLEAR, TEMPORARY].find((rule) => rule.name === name)?.why ?? '';
}

const ENHANCED = /(?<![\d.])([245])\.(\d{1,3})\.(\d{1,3})(?![\d.])/;

/**
 * Classifies the final reply for a message. `code` is the SMTP reply code, or 0 if a report had only an enhanced one;
 * `diag` is the text with its enhanced code. Servers may send texts of any length: only the first thousand characters
 * are used.
 */
export function classifyReply(code: number, diag: string): Bounce {
  const text = wordsOf(diag.slice(0, 1000));
  const [, level, subject, detail] = ENHANCED.exec(text) ?? [];
  const temporary = level === undefined ? code >= 400 && code < 500 : level === '4';
  const rule = RULES.find(
    ({ text: words, codes }) =>
      words?.test(text) || codes?.includes(`${subject}.${detail}`) || codes?.includes(`${subject}.`),
  );
  if (temporary && rule?.word !== 'mailbox_full') return toBounce(false, 'transient', TEMPORARY.name);
  return rule ? toBounce(rule.hard === true, rule.word, rule.name) : toBounce(false, 'general', UNCLEAR.name);
}

/** The reply on one line, without the codes of its lines and without links, whose words are not about this mail. */
function wordsOf(diag: string): string {
  return diag
    .replace(/[\s,]*\n\s*(?:[45]\d\d[ -](?:[45]\.\d{1,3}\.\d{1,3})?\s*)?/g, ' ')
    .replace(/\bhttps?:\/\/\S+/gi, ' ')
    .replace(/<[^<>\s]*@[^<>\s]*>/g, ' <address> ');
}

/** The part that a bounce event keeps. */
export const bounceDetail = ({ description, bgtools_code: code, rule }: Bounce) => ({ description, code, rule });

function toBounce(hard: boolean, description: BounceWord, rule: string): Bounce {
  return { kind: hard ? 'hard_bounce' : 'soft_bounce', description, bgtools_code: CODES[description], rule };
}
