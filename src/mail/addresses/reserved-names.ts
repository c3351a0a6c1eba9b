import { getPublicSuffix } from 'tldts';
import { frozen } from '../../base/frozen.ts';
import { toAsciiDomain } from './address.ts';
import { baseOf, isWildcard } from './wildcard-domain.ts';

// Domains that no account may add: those of the operator, public suffixes, and domains of free mail providers.

/** The operator's own names, from the settings. */
export interface OwnNames {
  readonly hostname: string;
  /** The other MX hosts. */
  readonly mxHosts: readonly string[];
  readonly returnDomain: string;
  /** Empty: none. */
  readonly publicUrl: string;
  /** Where browsers see the console, and the mail that it shows. */
  readonly consoleUrls: readonly string[];
  /** The name that sender domains include in their SPF records. */
  readonly spfInclude: string;
}

/** Why a domain is reserved. */
export type Reserved = 'ours' | 'public-suffix' | 'free-mail';

/** Tells which domains are reserved; domains are lower-case A-labels. */
export type ReservedNames = ReturnType<typeof createReservedNames>;

/** The reasons as texts for API answers. */
export const RESERVED_WORDS: Readonly<Record<Reserved, string>> = {
  ours: 'This name belongs to the operator of this service',
  'public-suffix': 'This is a public suffix: others register their domains under it',
  'free-mail': 'This domain belongs to a provider of free mail',
};

/**
 * Everything below our host names is ours too: `bounces.`, `spf.` and the names of dedicated addresses are there. The
 * return domain, the hosts of URLs and the SPF include may be anywhere, even at the top of a domain with other
 * people's names below it, so only these names themselves are reserved.
 */
export function createReservedNames(own: OwnNames) {
  const { hostname, mxHosts, returnDomain, publicUrl, consoleUrls, spfInclude } = own;
  const ascii = (names: readonly string[]) => names.flatMap((name) => toAsciiDomain(name) ?? []);
  const hosts = ascii([hostname, ...mxHosts]);
  const ofUrls = [publicUrl, ...consoleUrls].map((url) => URL.parse(url)?.hostname ?? '');
  const alone = new Set(ascii([returnDomain, spfInclude, ...ofUrls]));
  const all = [...hosts, ...alone];
  const isOurs = (domain: string) => alone.has(domain) || hosts.some((host) => isAtOrBelow(domain, host));
  return frozen({
    isOurs,
    whyReserved(name: string): Reserved | undefined {
      const domain = baseOf(name);
      // A wildcard must not cover our names.
      if (isOurs(domain) || (isWildcard(name) && all.some((one) => isAtOrBelow(one, domain)))) return 'ours';
      if (isPublicSuffix(domain)) return 'public-suffix';
      return isFreeMail(domain) ? 'free-mail' : undefined;
    },
  });
}

function isAtOrBelow(domain: string, other: string): boolean {
  return domain === other || domain.endsWith(`.${other}`);
}

const SUFFIX_OPTIONS = { allowPrivateDomains: true, extractHostname: false, validateHostname: false };

/**
 * Whether different owners register names directly below a domain (publicsuffix.org, including its private section with
 * `github.io` and others). An unlisted top-level domain counts as a public suffix.
 */
export function isPublicSuffix(domain: string): boolean {
  return getPublicSuffix(domain, SUFFIX_OPTIONS) === domain;
}

const FREE = new Set(
  `
aol.com aim.com gmail.com googlemail.com google.com
yahoo.com ymail.com rocketmail.com yahoo.co.uk yahoo.co.in yahoo.co.jp yahoo.fr yahoo.de yahoo.it yahoo.es yahoo.ca
yahoo.in yahoo.com.au yahoo.com.br yahoo.com.mx yahoo.com.ar yahoo.com.ph yahoo.com.sg
outlook.com outlook.de outlook.fr outlook.es outlook.it outlook.jp outlook.com.br hotmail.com hotmail.co.uk hotmail.de
hotmail.fr hotmail.it hotmail.es hotmail.nl hotmail.com.br
live.com live.co.uk live.de live.fr live.nl live.it live.com.au msn.com passport.com
icloud.com me.com mac.com
gmx.de gmx.net gmx.com gmx.at gmx.ch gmx.fr gmx.us web.de freenet.de t-online.de mail.de posteo.de 1und1.de arcor.de
mail.com email.com usa.com myself.com consultant.com inbox.com hushmail.com lycos.com excite.com zoho.com zohomail.com
fastmail.com fastmail.fm
proton.me protonmail.com protonmail.ch pm.me tutanota.com tutanota.de tuta.io tuta.com
mail.ru bk.ru inbox.ru list.ru internet.ru yandex.ru yandex.com ya.ru rambler.ru ukr.net
qq.com foxmail.com 163.com 126.com yeah.net sina.com sina.cn sohu.com aliyun.com 139.com 189.cn
naver.com daum.net hanmail.net nate.com docomo.ne.jp ezweb.ne.jp softbank.ne.jp
orange.fr wanadoo.fr free.fr laposte.net sfr.fr neuf.fr libero.it virgilio.it tiscali.it alice.it tin.it terra.com.br
uol.com.br bol.com.br ig.com.br
comcast.net verizon.net att.net sbcglobal.net bellsouth.net cox.net charter.net earthlink.net juno.com netzero.net
btinternet.com sky.com talktalk.net virginmedia.com
rediffmail.com seznam.cz centrum.cz wp.pl o2.pl onet.pl interia.pl bigpond.com optusnet.com.au shaw.ca rogers.com
sympatico.ca telus.net bluewin.ch
mailinator.com guerrillamail.com yopmail.com 10minutemail.com trashmail.com
`
    .trim()
    .split(/\s+/),
);

/** Whether a domain (A-labels) belongs to a free mail provider. */
export function isFreeMail(domain: string): boolean {
  return domain.split('.').some((_, at, labels) => FREE.has(labels.slice(at).join('.')));
}
