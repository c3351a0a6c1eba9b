import { toAsciiDomain } from './addresses/address.ts';
import type { McReading } from './mc-headers.ts';
import type { MergeLanguage } from './merge/language.ts';
import type { MergeValue } from './merge/values.ts';
import type { SentConversation } from './replies/sent-names.ts';

// The options of an outgoing message, and the names of its parts. Shared by the queue, the composer and the edges.

/** Where clicks are tracked: in the HTML part, the text part, both, or neither. */
export type ClickTracking = 'none' | 'html' | 'text' | 'all';

/** A merge variable; its name is case-insensitive. */
export interface MergeVar {
  readonly name: string;
  readonly content: MergeValue;
}

/** Metadata that an account attaches to a message: flat. Numbers stay numbers. */
export type Metadata = Readonly<Record<string, string | number | boolean>>;

/** Which links get analytics parameters. */
export interface Analytics {
  /** Hosts as lower-case A-labels. */
  readonly domains: readonly string[];
  /** Null: the sender's address. */
  readonly campaign: string | null;
}

/** Options that few messages use. Absent means off. */
export interface Extras {
  /** Writes the style sheets of the HTML into its elements. */
  readonly inlineCss?: boolean;
  /** Generates HTML for a message that has only a text. */
  readonly autoHtml?: boolean;
  /** Reports clicked URLs without their query. */
  readonly stripQuery?: boolean;
  readonly analytics?: Analytics;
  /** Never shows the content, and deletes it as soon as all recipients have received it. */
  readonly hideContent?: boolean;
  /** Hosts of links and of the return path, lower-case A-labels; used only if verified. */
  readonly trackingDomain?: string;
  readonly returnPathDomain?: string;
}

/** The options of an outgoing message, the same for all its recipients. Stored as JSON with the body on the queue. */
export interface Outgoing {
  /** The address in From, lower case. */
  readonly sender: string;
  readonly fromName: string | null;
  /** As submitted, before merging. */
  readonly subject: string;
  readonly tags: readonly string[];
  /** Slug. */
  readonly template: string | null;
  readonly subaccount: string | null;
  readonly metadata: Metadata;
  /** `id` of the API key used for submission. */
  readonly apiKey: string | null;
  readonly trackOpens: boolean;
  readonly trackClicks: ClickTracking;
  /** The merge variables for all recipients. Null: no merge tags are replaced. */
  readonly globalVars: readonly MergeVar[] | null;
  /** By recipient, in lower case. */
  readonly rcptVars: Readonly<Record<string, readonly MergeVar[]>>;
  /** The language of the merge tags; if absent, mailchimp, as for messages queued when it was the only one. */
  readonly mergeLanguage?: MergeLanguage | undefined;
  readonly rcptMetadata: Readonly<Record<string, Metadata>>;
  /** Shows every recipient to all of them in To and Cc. */
  readonly preserveRecipients: boolean;
  readonly autoText: boolean;
  /** The domain that signs instead of the sender's; null: the sender's, else ours. */
  readonly signingDomain: string | null;
  readonly pool: string | null;
  /** Rarely used options; absent: none. */
  readonly extras?: Extras;
  /** Set if it has an id of its own, or belongs to a conversation that began before it. */
  readonly conversation?: SentConversation;
  /**
   * The name of the host that accepted it, for its Message-ID, also if another host sends it. Absent: it is new, or was
   * queued by an older version.
   */
  readonly host?: string;
  /** The form of the body: a whole MIME document (submission, send-raw), or a `Draft` as JSON. */
  readonly form: 'mime' | 'draft';
}

/** A message in parts, as messages/send describes it; the body of an outgoing message with the form `draft`. */
export interface Draft {
  readonly html: string | null;
  readonly text: string | null;
  readonly to: readonly { readonly email: string; readonly name: string | null; readonly type: 'to' | 'cc' | 'bcc' }[];
  /** Names and values contain no line breaks. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly attachments: readonly DraftFile[];
  /** Files that the HTML refers to by `cid:<name>`. */
  readonly images: readonly DraftFile[];
}

export interface DraftFile {
  readonly name: string;
  readonly type: string;
  /** base64 */
  readonly content: string;
}

/** The endpoint of outbound mail to a domain (A-label, lower case). */
export function mailUrl(domain: string): string {
  return `smtp://${domain}`;
}

/** Options as given by the API or the fields of a document; absent or empty means not set. */
export interface GivenExtras {
  readonly inlineCss?: boolean | null | undefined;
  readonly autoHtml?: boolean | null | undefined;
  readonly stripQuery?: boolean | null | undefined;
  readonly analyticsDomains?: readonly string[] | undefined;
  readonly analyticsCampaign?: string | null | undefined;
  /** False hides the content. */
  readonly viewContent?: boolean | null | undefined;
  readonly trackingDomain?: string | null | undefined;
  readonly returnPathDomain?: string | null | undefined;
}

/** Limits: hosts for analytics per message, and characters of its campaign. */
export const MAX_ANALYTICS_DOMAINS = 100;
export const LONGEST_CAMPAIGN = 255;

/** The extras of a message, to be spread into its options; empty if none is set. */
export function toExtras(given: GivenExtras): { readonly extras?: Extras } {
  const { trackingDomain, returnPathDomain } = given;
  const analytics = toAnalytics(given);
  const extras: Extras = {
    ...(given.inlineCss === true && { inlineCss: true }),
    ...(given.autoHtml === true && { autoHtml: true }),
    ...(given.stripQuery === true && { stripQuery: true }),
    ...(analytics && { analytics }),
    ...(given.viewContent === false && { hideContent: true }),
    ...(trackingDomain && { trackingDomain }),
    ...(returnPathDomain && { returnPathDomain }),
  };
  return Object.keys(extras).length === 0 ? {} : { extras };
}

function toAnalytics({ analyticsDomains = [], analyticsCampaign }: GivenExtras): Analytics | undefined {
  const domains = [...new Set(analyticsDomains)];
  return domains.length === 0 ? undefined : { domains, campaign: analyticsCampaign || null };
}

/** Reads extras from X-MC-* fields. Malformed values are ignored and recorded as such. */
export function readExtras({ one, flag, words, ignore }: McReading): GivenExtras {
  const name = (text: string) => toAsciiDomain(text);
  return {
    inlineCss: flag('InlineCSS'),
    autoHtml: flag('AutoHtml'),
    stripQuery: flag('URLStripQS'),
    viewContent: flag('ViewContentLink'),
    trackingDomain: one('TrackingDomain', name),
    returnPathDomain: one('ReturnPathDomain', name),
    analyticsDomains: readDomains(words('GoogleAnalytics'), () => ignore('GoogleAnalytics')),
    analyticsCampaign: one('GoogleAnalyticsCampaign', (text) =>
      text.length > LONGEST_CAMPAIGN || /\p{Cc}/u.test(text) ? undefined : text,
    ),
  };
}

function readDomains(values: readonly string[], ignore: () => void): string[] {
  const domains: string[] = [];
  for (const text of values) {
    const domain = toAsciiDomain(text);
    if (domain === undefined || domains.length >= MAX_ANALYTICS_DOMAINS) ignore();
    else domains.push(domain);
  }
  return domains;
}

/** Limits on a message; one that exceeds any of them is not parsed but delivered raw. */
export const MESSAGE_LIMITS = Object.freeze({
  /** Bytes per header block. Postfix cuts at 100 KiB. */
  headerBytes: 256 * 1024,
  /** Fields per header block; a field may be folded into any number of lines, such as one for each recipient. */
  headerFields: 1000,
  /** Bytes of all header blocks of a message. */
  allHeaderBytes: 1024 * 1024,
  /** Parts per message (Haraka's limit). */
  parts: 1000,
  /** Depth of nested multiparts. Postfix stops at 100. */
  nesting: 64,
  /** Characters of all address fields of a message. */
  addressBytes: 64 * 1024,
});

const LF = 0x0a;
const SPACE = 0x20;
const TAB = 0x09;

/** Describes the cap that a header block exceeds; undefined if it exceeds none. */
export function headerLimitBreach(block: Buffer): string | undefined {
  if (block.length > MESSAGE_LIMITS.headerBytes) return `a header of more than ${MESSAGE_LIMITS.headerBytes} bytes`;
  // A field takes two bytes at least.
  if (block.length < 2 * MESSAGE_LIMITS.headerFields) return undefined;
  let fields = 0;
  let at = 0;
  do {
    if (block[at] !== SPACE && block[at] !== TAB) fields += 1;
    if (fields > MESSAGE_LIMITS.headerFields) return `a header of more than ${MESSAGE_LIMITS.headerFields} fields`;
    at = block.indexOf(LF, at) + 1;
  } while (at > 0 && at < block.length);
  return undefined;
}
