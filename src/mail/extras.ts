import { toAsciiDomain } from './address.ts';
import type { McReading } from './mc-reading.ts';
import type { Analytics, Extras } from './sending.ts';

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
