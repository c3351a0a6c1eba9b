import { toAsciiDomain } from './address.ts';
import type { McReading } from './mc-headers.ts';
import type { MergeLanguage } from './merge/language.ts';
import type { MergeValue } from './merge/values.ts';

// What is asked of mail that goes out, and how its parts are named. Pure: the spool, the composer and the edges share
// it.

/** What tracks clicks: links of the HTML part, of the text part, both, or none. */
export type ClickTracking = 'none' | 'html' | 'text' | 'all';

/** A merge variable; names count in any case. */
export interface MergeVar {
  readonly name: string;
  readonly content: MergeValue;
}

/** What an account notes on a message: flat. A number stays a number. */
export type Metadata = Readonly<Record<string, string | number | boolean>>;

/** Which links say, to the site that they lead to, that they were in a mail. */
export interface Analytics {
  /** Hosts, lower-case A-labels. */
  readonly domains: readonly string[];
  /** Null: the sender's address. */
  readonly campaign: string | null;
}

/** Wishes that most messages do not have. What is absent is not wished for. */
export interface Extras {
  /** Style sheets of the HTML are written into its elements. */
  readonly inlineCss?: boolean;
  /** A message with a text alone gets HTML made of it. */
  readonly autoHtml?: boolean;
  /** Clicks are told without the query of their URL. */
  readonly stripQuery?: boolean;
  readonly analytics?: Analytics;
  /** The content is not shown to anybody, and forgotten as soon as all recipients have it. */
  readonly hideContent?: boolean;
  /** Hosts of links and of the return path, lower-case A-labels, if they prove to be ours to use. */
  readonly trackingDomain?: string;
  readonly returnPathDomain?: string;
}

/** What an account asked of a message, the same for all its recipients. Stands as JSON beside the body on the spool. */
export interface Outgoing {
  /** Of the From header, lower case. */
  readonly sender: string;
  readonly fromName: string | null;
  /** As the account gave it, before merging. */
  readonly subject: string;
  readonly tags: readonly string[];
  /** Slug. */
  readonly template: string | null;
  readonly subaccount: string | null;
  readonly metadata: Metadata;
  /** `id` of the API key that it was handed over with. */
  readonly apiKey: string | null;
  readonly trackOpens: boolean;
  readonly trackClicks: ClickTracking;
  /** Whether merge tags are replaced, and with what for everybody. Null: nothing is replaced. */
  readonly globalVars: readonly MergeVar[] | null;
  /** By recipient in lower case. */
  readonly rcptVars: Readonly<Record<string, readonly MergeVar[]>>;
  /**
   * The language that tags are written in; mailchimp when it is not said, as for all that was queued before there were
   * two.
   */
  readonly mergeLanguage?: MergeLanguage | undefined;
  readonly rcptMetadata: Readonly<Record<string, Metadata>>;
  /** Every recipient is shown to all of them in To and Cc. */
  readonly preserveRecipients: boolean;
  readonly autoText: boolean;
  /** Domain that signs instead of the sender's; null: the sender's, else ours. */
  readonly signingDomain: string | null;
  readonly pool: string | null;
  /** What few messages ask for; absent: nothing of it. */
  readonly extras?: Extras;
  /** What the body is: a whole MIME document (submission, send-raw), or a `Draft` as JSON. */
  readonly form: 'mime' | 'draft';
}

/** A message in parts, as messages/send describes it; the body of an outgoing message of the form `draft`. */
export interface Draft {
  readonly html: string | null;
  readonly text: string | null;
  readonly to: readonly { readonly email: string; readonly name: string | null; readonly type: 'to' | 'cc' | 'bcc' }[];
  /** Names and values without line ends. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly attachments: readonly DraftFile[];
  /** Files that the HTML shows by `cid:<name>`. */
  readonly images: readonly DraftFile[];
}

export interface DraftFile {
  readonly name: string;
  readonly type: string;
  /** base64 */
  readonly content: string;
}

/** The endpoint of mail going out to a domain (A-label, lower case). */
export function mailUrl(domain: string): string {
  return `smtp://${domain}`;
}

/** Wishes as the API and the fields of a document give them; nothing was said of what is absent or empty. */
export interface GivenExtras {
  readonly inlineCss?: boolean | null | undefined;
  readonly autoHtml?: boolean | null | undefined;
  readonly stripQuery?: boolean | null | undefined;
  readonly analyticsDomains?: readonly string[] | undefined;
  readonly analyticsCampaign?: string | null | undefined;
  /** False: the content is to be hidden. */
  readonly viewContent?: boolean | null | undefined;
  readonly trackingDomain?: string | null | undefined;
  readonly returnPathDomain?: string | null | undefined;
}

/** Hosts that a message may name for analytics, and characters of its campaign. */
export const MAX_ANALYTICS_DOMAINS = 100;
export const LONGEST_CAMPAIGN = 255;

/** The wishes of a message, to be spread into what is asked of it; empty when it has none. */
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

/** What the X-MC-* fields wish. What is malformed is ignored, and named so. */
export function readExtras({ one, flag, all, ignore }: McReading): GivenExtras {
  const name = (text: string) => toAsciiDomain(text);
  return {
    inlineCss: flag('InlineCSS'),
    autoHtml: flag('AutoHtml'),
    stripQuery: flag('URLStripQS'),
    viewContent: flag('ViewContentLink'),
    trackingDomain: one('TrackingDomain', name),
    returnPathDomain: one('ReturnPathDomain', name),
    analyticsDomains: readDomains(all('GoogleAnalytics'), () => ignore('GoogleAnalytics')),
    analyticsCampaign: one('GoogleAnalyticsCampaign', (text) =>
      text.length > LONGEST_CAMPAIGN || /\p{Cc}/u.test(text) ? undefined : text,
    ),
  };
}

function readDomains(values: readonly string[], ignore: () => void): string[] {
  const domains: string[] = [];
  for (const text of values.flatMap((value) => value.split(',')).map((value) => value.trim())) {
    if (text === '') continue;
    const domain = toAsciiDomain(text);
    if (domain === undefined || domains.length >= MAX_ANALYTICS_DOMAINS) ignore();
    else domains.push(domain);
  }
  return domains;
}

/** What a message may have before it counts as an attack; one that breaks a cap is delivered raw. */
export const CAPS = Object.freeze({
  /** Bytes of one header block. Postfix cuts at 100 KiB. */
  headerBytes: 256 * 1024,
  /** Lines of one header block, folded ones included (Haraka's limit). */
  headerLines: 1000,
  /** Bytes of all header blocks of a message together. */
  allHeaderBytes: 1024 * 1024,
  /** Parts of a message (Haraka's limit). */
  parts: 1000,
  /** Multiparts inside multiparts. Postfix stops at 100. */
  nesting: 64,
  /** Characters of all address fields of a message together. */
  addressBytes: 64 * 1024,
});

const LF = 0x0a;

/** Which cap a header block breaks, in words. */
export function breachOfBlock(block: Buffer): string | undefined {
  if (block.length > CAPS.headerBytes) return `a header of more than ${CAPS.headerBytes} bytes`;
  let lines = 0;
  for (let at = block.indexOf(LF); at !== -1; at = block.indexOf(LF, at + 1)) {
    lines += 1;
    if (lines > CAPS.headerLines) return `a header of more than ${CAPS.headerLines} lines`;
  }
  return undefined;
}
