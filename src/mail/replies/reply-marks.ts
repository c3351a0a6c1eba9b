import { pattern } from '../../base/pattern.ts';

// Recognizes the lines that mail programs write above quoted and forwarded messages, in the languages that most people
// use. Only bounded pieces of text are examined.

/** Longer lines are prose: a name and an address have 320 characters at most, and a date 60. */
const LONGEST_LINE = 500;
/** An attribution is wrapped over at most this number of lines. */
export const MAX_WRAPPED = 4;

/** How sure an attribution is. strong: it is one, whatever follows · weak: only if marked lines follow. */
type Strength = 'strong' | 'weak';

/** The word for writing in attributions, by language. */
const VERBS = [
  'wrote|writes', // English
  'schrieb|schreibt|geschrieben', // German
  "a écrit|à écrit|a ecrit|a e'crit", // French
  'escribió|escribio', // Spanish
  'escreveu', // Portuguese
  'ha scritto|scrive', // Italian
  'schreef|schrijft|geschreven', // Dutch
  'napisał|napisała|pisze|nadesłał', // Polish
  'skrev', // Swedish, Danish, Norwegian
  'kirjoitti', // Finnish
  'написал|написала|пишет', // Russian
  'написав|написала|пише', // Ukrainian
  'napsal|napsala|napísal|napísala', // Czech, Slovak
  'a scris', // Romanian
  'írta', // Hungarian
  'yazdı', // Turkish
  'έγραψε', // Greek
  'đã viết', // Vietnamese
  'menulis', // Indonesian
];
const VERB = new RegExp(`(?:^|[^\\p{L}])(?:${VERBS.join('|')})(?![\\p{L}])`, 'iu');
/** These may adjoin other letters. */
const CJK_VERB = /写道|寫道|写到|写信|書きました|のメール|님이 작성|작성:/u;

/** The first word of an attribution that begins with a preposition, or a digit of its date. */
const OPENER =
  /^[-\s]*(?:\d|(?:on|am|le|el|em|no dia|il|op|w dniu|dnia|den|på|på|dne|dňa|în|в|vào|pada|στις|在|于|於)[\s\d])/iu;
const SENTENCE_END = /[.!?。！？:]$/u;
/** A period after a number or a short word (`28.`, `Apr.`, `p.m.`) is of a date or a name: lines wrap there too. */
const ABBREVIATION = /(?:\d|(?<!\p{L})\p{L}{1,4})\.$/u;
const endsSentence = (line: string): boolean => SENTENCE_END.test(line) && !ABBREVIATION.test(line);
const DATE =
  /(?<![\w@])(?:\d{1,2}[:.h]\d{2}(?!\w)|(?:19|20)\d\d(?![\w@])|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?!\w))|\d\s?[年月日년월]/u;
/** Own words on the line of an attribution: some programs do not start a new line. */
const SHARED_LINE = /[^\s-][-\s]{1,4}On (?:[A-Z][a-z]{2,8},? ){1,2}\d.{0,200} wrote:$/u;
/** Bounded by the longest address, so that no start costs more. */
const ADDRESS = /[^\s<>()@]{1,128}@[^\s<>()@]{1,255}/u;
const ADDRESS_AT_END = /@[^\s<>()@]{1,255}>{0,3}[)\]"']{0,2}\s?$/u;
/** What mail programs leave around a line: direction marks, zero-width characters, bold in plain text. */
const AROUND = pattern('gu')`
  ^[\s*_\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]{1,200}
  |[\s*_\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]{1,200}$
`;

/** Removes what mail programs leave around a line. */
const bare = (line: string): string => line.replace(AROUND, '');

/** An attribution at the end of some lines: its number of lines, and its strength. */
interface Attribution {
  readonly lines: number;
  readonly strength: Strength;
}

/**
 * Finds an attribution (`On Monday, Ann wrote:`) at the end of some adjacent lines, of which it may take several. It
 * ends with a colon and has a date and a writer, in any order; a line that does not is weak if it ends with a colon and
 * names a writer or an address.
 */
export function attributionIn(lines: readonly string[]): Attribution | undefined {
  const last = lines.at(-1);
  if (last === undefined || last.length > LONGEST_LINE) return undefined;
  const end = bare(last);
  if (!/[:：]$/u.test(end)) return end.startsWith('--') ? dashed(end) : undefined;
  let joined = '';
  for (let count = 1; count <= Math.min(lines.length, MAX_WRAPPED); count++) {
    const line = bare(lines.at(-count) ?? '');
    // An address alone has its name on the line above: `Example Company.` is no end of a sentence then.
    if (count > 1 && endsSentence(line) && !joined.startsWith('<')) break;
    joined = count === 1 ? line : `${line}${joined.startsWith('>') ? '' : ' '}${joined}`;
    if (joined.length > LONGEST_LINE) break;
    if (!isStrong(joined)) continue;
    // The line above may have the beginning: `On Monday, 5 January` above `2026 Ann wrote:`.
    const above = bare(lines.at(-count - 1) ?? '');
    const more = count < MAX_WRAPPED && ((isCutAbove(joined) && isOpening(above)) || isDateBegun(above, joined));
    return { lines: count + (more ? 1 : 0), strength: 'strong' };
  }
  return !SHARED_LINE.test(end) && (hasVerb(end) || ADDRESS.test(end)) ? { lines: 1, strength: 'weak' } : undefined;
}

const hasVerb = (text: string): boolean => VERB.test(text) || CJK_VERB.test(text);

function isStrong(text: string): boolean {
  if (!DATE.test(text) || SHARED_LINE.test(text)) return false;
  if (ADDRESS_AT_END.test(text.slice(0, -1))) return true;
  return hasVerb(text) && (OPENER.test(text) || ADDRESS.test(text) || CJK_VERB.test(text));
}

/** Whether the beginning may be on the line above: there is no first word of an attribution. */
const isCutAbove = (text: string): boolean => !/^\D{0,3}\p{L}/u.test(OPENER.exec(text)?.[0] ?? '');
/** A weekday, a day and perhaps a month and a year: `fre. 28. apr.`, `пт, 28 апр. 2017 г.` */
const WEEKDAY_LINE =
  /^\p{L}{1,12}\.?,?\s\d{1,2}\.?(?:\s(?:\p{L}{1,12}\.?|\d{1,2}\.?))?(?:\s\d{4}(?:\s?\p{L}{1,2}\.)?)?$/u;
/** The next line after such a line begins so: with the year or the time. */
const REST_OF_DATE = /^(?:(?:19|20)\d\d(?!\d)|(?:\p{L}{1,4}\.?\s)?\d{1,2}[:.h]\d\d)/u;
const isDateBegun = (above: string, text: string): boolean => REST_OF_DATE.test(text) && WEEKDAY_LINE.test(above);

const isOpening = (line: string): boolean => line.length <= 100 && OPENER.test(line) && !endsSentence(line);

/** `---- On Mon, 5 Jan 2026, Ann wrote ----` */
function dashed(line: string): Attribution | undefined {
  return line.endsWith('--') && hasVerb(line) ? { lines: 1, strength: DATE.test(line) ? 'strong' : 'weak' } : undefined;
}

const ORIGINAL = [
  'original message|original email|original appointment|reply message',
  'ursprüngliche nachricht|originalnachricht|antwort nachricht|originalmail',
  "message d'origine|message d’origine|message original|message initial",
  'mensaje original',
  'mensagem original',
  'messaggio originale',
  'oorspronkelijk bericht|origineel bericht',
  'oryginalna wiadomość|wiadomość oryginalna|wiadomość pierwotna',
  'ursprungligt meddelande|originalmeddelande',
  'oprindelig meddelelse|original meddelelse',
  'opprinnelig melding',
  'alkuperäinen viesti',
  'исходное сообщение|оригинальное сообщение|original message',
  'původní zpráva|pôvodná správa',
  'mesaj original|eredeti üzenet|orijinal mesaj|özgün ileti',
  '元のメッセージ|原始邮件|原始郵件|원본 메시지|원본 메일',
];
const ORIGINAL_LINE = new RegExp(
  `^[-_=~\u2010-\u2015]{2,80}\\s?(?:${ORIGINAL.join('|')})\\s?[-_=~\u2010-\u2015]{2,80}$`,
  'iu',
);

const FORWARDED = [
  'forwarded message|forwarded email|forwarded mail|begin forwarded message',
  'weitergeleitete nachricht|anfang der weitergeleiteten nachricht|weitergeleitete mail',
  'message transféré|début du message réexpédié|début du message transféré|message réexpédié',
  'mensaje reenviado|inicio del mensaje reenviado',
  'mensagem encaminhada|mensagem reencaminhada|início da mensagem encaminhada|início da mensagem reencaminhada',
  'messaggio inoltrato|inizio messaggio inoltrato|messaggio inoltrato da',
  'doorgestuurd bericht|begin doorgestuurd bericht',
  'przekazana wiadomość|wiadomość przekazana|początek przekazywanej wiadomości',
  'vidarebefordrat meddelande|vidarebefordrat brev|vidarebefordrat mejl',
  'videresendt meddelelse|start på videresendt besked|videresendt besked',
  'videresendt melding|videresendt melding begynner',
  'välitetty viesti|пересылаемое сообщение|пересланное сообщение|начало переадресованного сообщения',
  'přeposlaná zpráva|továbbított üzenet|iletilen mesaj|mesaj redirecționat',
  '転送されたメッセージ|転送メッセージ|转发的邮件|转发邮件|轉寄的郵件|已转发的邮件|전달된 메시지|전달된 메일',
];
const FORWARDED_WORDS = new RegExp(`(?:${FORWARDED.join('|')})`);
const FORWARDED_LINE = pattern('iu')`
  ^(?:[-_=~\u2010-\u2015]{2,80}\s?${FORWARDED_WORDS}[^\n]{0,200}[-_=~\u2010-\u2015]{2,80}
  |${FORWARDED_WORDS}\s?[:：])$
`;

/** Whether a line announces the original message: `-----Original Message-----`. */
export const isOriginalLine = (line: string): boolean => line.length <= LONGEST_LINE && ORIGINAL_LINE.test(bare(line));

/** Whether a line announces a forwarded message: `Begin forwarded message:`. */
export const isForwardedLine = (line: string): boolean =>
  line.length <= LONGEST_LINE && FORWARDED_LINE.test(bare(line));

/** The subject prefixes of programs that forward a message as they quote one: `FW:`, and its translations. */
const FORWARDED_SUBJECT =
  /^\s{0,20}\[?(?:fwd?|wg|tr|rv|enc|i|doorst|pd|vb|vs|vl|пересл|перес|转发|轉寄|転送|전달|ilt|továbbítás)\s?[:：]/iu;

/** Whether a message forwards another one, according to its subject. */
export const isForwardedSubject = (subject: string): boolean => FORWARDED_SUBJECT.test(subject);

/** The field that a label of a quoted header names. */
export type Label = 'from' | 'date' | 'to' | 'subject' | 'other';

const LABELS: ReadonlyMap<string, Label> = new Map([
  ...labels(
    'from',
    'from von de da van od från fra от від 差出人 送信者 发件人 寄件者 寄件人 보낸사람 kimden gönderen lähettäjä feladó expéditeur ' +
      'remitente mittente afzender "de la" "от кого"',
  ),
  ...labels(
    'date',
    'sent date gesendet datum envoyé "envoyé le" enviado "enviado el" enviada "enviada em" "enviado em" fecha ' +
      'data inviato "data invio" verzonden wysłano skickat sendt dato отправлено дата 送信日時 日時 日付 发送时间 发送日期 日期 时间 ' +
      '寄件日期 傳送時間 보낸날짜 odesláno odoslané lähetetty päivämäärä päiväys gönderildi tarih elküldve dátum trimis',
  ),
  ...labels(
    'to',
    'to an à a para aan do till til кому komu către 宛先 收件人 收件者 받는사람 vastaanottaja kime alıcı címzett ' +
      'destinataire destinatario',
  ),
  ...labels(
    'subject',
    'subject betreff objet asunto assunto oggetto onderwerp temat ämne emne тема 件名 主题 主題 제목 předmět predmet ' +
      'aihe konu tárgy subiect',
  ),
  ...labels(
    'other',
    'cc bcc kopie kopia copie copia kopi копия dw udw "reply-to" attachments anlagen importance priorität ' +
      'wichtigkeit organization 抄送 副本 참조',
  ),
]);

function labels(label: Label, words: string): (readonly [string, Label])[] {
  return [...words.matchAll(/"([^"]+)"|(\S+)/gu)].map(([, quoted, word]) => [quoted ?? word ?? '', label]);
}

/** Longer names of fields are prose. */
const LONGEST_LABEL = 24;

/** The field of a quoted header at the start of a line (`From: `, `*Von:*`, `差出人：`); undefined if there is none. */
export function labelOf(line: string): Label | undefined {
  const start = line.slice(0, LONGEST_LABEL + 12).replace(/^[\s*_]{1,12}/u, '');
  const colon = start.search(/[:：]/u);
  if (colon < 1 || colon > LONGEST_LABEL) return undefined;
  const name = start
    .slice(0, colon)
    .replace(/[\s*_]{1,12}$/u, '')
    .toLowerCase();
  return LABELS.get(name) ?? LABELS.get(name.replaceAll(' ', ''));
}

/** The fields that are found in a quoted header, and whether they are enough for one. */
export function isHeader(found: ReadonlySet<Label>): boolean {
  return found.has('from') && found.has('date') && (found.has('to') || found.has('subject'));
}
