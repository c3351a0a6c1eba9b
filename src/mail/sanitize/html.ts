import { percentDecoded } from '../../base/form-pairs.ts';
import { escapeHtml } from '../../base/html.ts';
import { readElements } from '../html-edit.ts';
import { sanitizeDeclarations, sanitizeSheet } from './css.ts';

// The HTML of a mail as a page that asks for nothing: no scripts, no frames, no forms, nothing that is loaded, and no
// link that can be followed. It is written anew from the elements and attributes listed here; everything else is left
// out. The browser's sandbox is what protects the reader; this removes the requests that a sandbox lets through,
// because each tells the sender that the mail was read.

/** A link of the mail, as text. */
interface SanitizedLink {
  readonly text: string;
  readonly href: string;
}

export interface SanitizedPage {
  readonly html: string;
  /** The first links, for a list beside the page. */
  readonly links: readonly SanitizedLink[];
  /** Pictures that were left out because they would have to be fetched. */
  readonly leftOut: number;
  /** Whether the end was left out, because the page would have been too long. */
  readonly cut: boolean;
}

/** A part of the mail that a `cid:` address names. */
export interface InlinePicture {
  readonly bytes: Uint8Array;
}

interface SanitizerLimits {
  /** Characters of the page, its pictures included. */
  readonly maxLength: number;
}

const ELEMENTS = new Set(
  (
    'a abbr acronym address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del ' +
    'details dfn dir div dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li ' +
    'main mark ' +
    'nav ol p pre q rp rt ruby s samp section small span strike strong sub summary sup table tbody td tfoot th thead ' +
    'time tr tt u ul var wbr'
  ).split(' '),
);
/** Elements without an end tag. */
const EMPTY = new Set(['br', 'col', 'hr', 'img', 'wbr']);
/** Elements whose content is not shown, or not as HTML. */
const DROPPED = new Set(
  (
    'script style title textarea iframe noembed noframes xmp plaintext template svg math select datalist audio video ' +
    'canvas applet'
  ).split(' '),
);
/** Those of them whose contents a browser reads as plain text. */
const RAW = new Set('script style title textarea iframe noembed noframes xmp plaintext'.split(' '));
const ATTRIBUTES = new Set(
  (
    'abbr align alt axis bgcolor border bordercolor cellpadding cellspacing char class clear color colspan ' +
    'compact dir ' +
    'face frame headers height hspace id lang noshade nowrap open reversed rowspan rules scope size span start style ' +
    'summary title type valign value vspace width'
  ).split(' '),
);
const MAX_LINKS = 500;
const LONGEST_LINK = 2_000;
const LONGEST_TEXT = 200;

const HEAD =
  '<!doctype html><html><head><meta charset="utf-8"><style>' +
  'html{color-scheme:light;background:#fff;color:#111}body{margin:12px;font:15px/1.5 ' +
  'system-ui,sans-serif;overflow-wrap:anywhere}' +
  'img{max-width:100%;height:auto}a{color:#0b57d0;text-decoration:underline}.postern-left-out{border:1px ' +
  'dashed #888;padding:0 4px;color:#555}' +
  '</style></head><body>';
const TAIL = '</body></html>';

/** Makes the page. `pictureOf` finds the part with a Content-ID. */
export function sanitizePage(
  html: string,
  pictureOf: (contentId: string) => InlinePicture | undefined,
  { maxLength }: SanitizerLimits,
): SanitizedPage {
  const page = createPage(maxLength, pictureOf);
  /** The element whose content is left out, and how many of its name are open. */
  let dropped: { readonly name: string; open: number } | undefined;
  let sheet: string[] = [];

  const opened = (name: string, attributes: ReadonlyMap<string, string>) => {
    if (dropped) {
      if (dropped.name === name && !RAW.has(name)) dropped.open++;
    } else if (DROPPED.has(name)) dropped = { name, open: 1 };
    else page.open(name, attributes);
  };
  const closed = (closing: string) => {
    if (!dropped) page.close(closing);
    else if (dropped.name === closing && --dropped.open === 0) {
      if (closing === 'style') page.sheet(sheet.join(''));
      sheet = [];
      dropped = undefined;
    }
  };
  const text = (part: string) => {
    if (!dropped) page.text(part);
    else if (dropped.name === 'style') sheet.push(part);
  };
  readElements(html, {
    open(name, attributes, isClosed) {
      // In HTML the slash means nothing, but svg and math end with it.
      if (!isClosed || dropped || !(name === 'svg' || name === 'math')) opened(name, attributes);
    },
    close: closed,
    text,
  });
  return page.finish();
}

/** The page as it is written. */
function createPage(maxLength: number, pictureOf: (contentId: string) => InlinePicture | undefined) {
  const out: string[] = [HEAD];
  const links: SanitizedLink[] = [];
  let left = maxLength - HEAD.length - TAIL.length;
  let leftOut = 0;
  let cut = false;
  let link: { readonly href: string; text: string } | undefined;

  const put = (text: string) => {
    if (cut || text.length > left) {
      cut = true;
      return;
    }
    left -= text.length;
    out.push(text);
  };
  const endLink = () => {
    if (link && links.length < MAX_LINKS) links.push({ ...link, text: link.text.trim().replace(/\s+/g, ' ') });
    link = undefined;
  };

  /** The address of a picture that needs no request; undefined if it would have to be fetched, or is none. */
  const source = (address: string): string | undefined => {
    if (/^cid:/i.test(address)) {
      const picture = pictureOf(percentDecoded(address.slice(4)));
      const type = picture && rasterType(picture.bytes);
      // A picture that does not fit is not encoded first.
      if (!picture || type === undefined || (picture.bytes.length * 4) / 3 > left) return undefined;
      return `data:${type};base64,${Buffer.from(picture.bytes).toString('base64')}`;
    }
    const [, base64] = /^data:image\/[a-z+.-]{1,20};base64,([a-z0-9+/=\s]*)$/i.exec(address) ?? [];
    if (base64 === undefined) return undefined;
    const type = rasterType(Buffer.from(base64.slice(0, 64), 'base64'));
    return type && `data:${type};base64,${base64.replace(/\s+/g, '')}`;
  };

  return {
    open(name: string, attributes: ReadonlyMap<string, string>) {
      if (name === 'a') endLink();
      if (name === 'body') put(`<div${written(attributes)}>`);
      if (!ELEMENTS.has(name)) return;
      let own = '';
      const href = name === 'a' ? cleanAddress(attributes.get('href') ?? '') : '';
      if (href !== '' && !href.startsWith('#')) {
        const shown = href.slice(0, LONGEST_LINK);
        link = { href: shown, text: '' };
        if (!attributes.has('title')) own += ` title="${escapeHtml(shown)}"`;
      }
      if (name === 'img') {
        const address = cleanAddress(attributes.get('src') ?? '');
        const shown = source(address);
        if (shown === undefined) {
          if (address !== '') leftOut++;
          const alt = (attributes.get('alt') ?? '').trim();
          if (alt !== '') put(`<span class="postern-left-out">${escapeHtml(alt)}</span>`);
          return;
        }
        own += ` src="${shown}"`;
      }
      put(`<${name}${own}${written(attributes)}>`);
    },
    close(name: string) {
      if (name === 'a') endLink();
      if (name === 'body') put('</div>');
      else if (ELEMENTS.has(name) && !EMPTY.has(name)) put(`</${name}>`);
    },
    text(text: string) {
      if (link && link.text.length < LONGEST_TEXT) link.text += text.slice(0, LONGEST_TEXT);
      put(escapeHtml(text));
    },
    sheet(css: string) {
      const safe = sanitizeSheet(css);
      // Nothing in it can end the element: selectors and values have no "<".
      if (safe !== '') put(`<style>${safe.replaceAll('<', '')}</style>`);
    },
    finish(): SanitizedPage {
      endLink();
      return { html: out.join('') + TAIL, links, leftOut, cut };
    },
  };
}

function written(attributes: ReadonlyMap<string, string>): string {
  let text = '';
  for (const [name, value] of attributes) {
    if (!ATTRIBUTES.has(name)) continue;
    const safe = name === 'style' ? sanitizeDeclarations(value) : value;
    if (safe !== '' || value === '') text += ` ${name}="${escapeHtml(safe)}"`;
  }
  return text;
}

/** As a browser reads an address: without white space around it, and without line breaks and tabs inside. */
function cleanAddress(address: string): string {
  return address.replace(/[\t\n\r]+/g, '').trim();
}

/** The type of a raster picture by its first bytes, whatever the mail declares; SVG is a program, not a picture. */
function rasterType(bytes: Uint8Array): string | undefined {
  const start = Buffer.from(bytes.subarray(0, 12)).toString('latin1');
  if (start.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (start.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (/^GIF8[79]a/.test(start)) return 'image/gif';
  if (/^RIFF[^]{4}WEBP/.test(start)) return 'image/webp';
  return undefined;
}
