import { asciiParameter, decodedParameter, firstValue, type ParameterizedValue, parseStructured } from './headers.ts';
import { encodingOf, isMediaType, isMultipart, mediaTypeOf, type Part } from './structure.ts';
import type { TransferEncoding } from './transfer.ts';

// Classifies each part of a message: the text, the HTML, or a file. Each is exactly one of them, so that nothing
// vanishes.

/** A part that has no parts of its own. */
export interface Leaf {
  readonly part: Part;
  readonly role: 'text' | 'html' | 'file';
  /** In lower case: as declared, if that is a media type. */
  readonly type: string;
  /** The file name, decoded but not yet safe; '' if there is none. */
  readonly name: string;
  /** In lower case; null if there is none. */
  readonly disposition: string | null;
  /** Without angle brackets; null if there is none. */
  readonly contentId: string | null;
  /** The URL under which the HTML may refer to it (RFC 2557 section 4.2); null if there is none. */
  readonly location: string | null;
  /** Whether it is a sibling of the root of a multipart/related, where no disposition counts (RFC 2387 section 4). */
  readonly isRelated: boolean;
  readonly encoding: TransferEncoding;
  /** The declared charset; '' if there is none. */
  readonly charset: string;
}

/** The position of a part. */
interface Position {
  /** Whether nothing but alternatives precedes it: it is the body of the message. */
  readonly isFirst: boolean;
  readonly isRelated: boolean;
}

/** The leaves of a message, in order. */
export function readLeaves(root: Part): Leaf[] {
  const found: Leaf[] = [];
  collect(root, { isFirst: true, isRelated: false }, found);
  return withOneHtml(found);
}

function collect(part: Part, position: Position, found: Leaf[]): void {
  if (part.children.length === 0) {
    found.push(toLeaf(part, position));
    return;
  }
  const isAlternative = part.type.value === 'multipart/alternative';
  const isRelated = part.type.value === 'multipart/related';
  const main = (isRelated && startOf(part)) || part.children[0];
  for (const child of part.children)
    collect(
      child,
      {
        isFirst: position.isFirst && (isAlternative || child === main),
        isRelated: position.isRelated || (isRelated && child !== main),
      },
      found,
    );
}

/** The root of a multipart/related, if it is named (RFC 2387 section 3.2). */
function startOf(part: Part): Part | undefined {
  const start = toContentId(asciiParameter(part.type, 'start'));
  return start === null ? undefined : part.children.find((child) => contentIdOf(child) === start);
}

function toLeaf(part: Part, { isFirst, isRelated }: Position): Leaf {
  const disposition = parseStructured(firstValue(part.fields, 'content-disposition') ?? '');
  const contentId = contentIdOf(part);
  const location = firstValue(part.fields, 'content-location')?.replace(/\s/g, '') || null;
  const name = decodedParameter(disposition, 'filename') || decodedParameter(part.type, 'name');
  const { declared, isText, fallback } = declaredType(part);
  // RFC 8621 section 4.1.4: a text with a name is a file, unless it is the body. A related part with an id is a file
  // that the HTML refers to. Only `attachment` makes an attachment: senders write anything.
  const isFile =
    !isText ||
    wordOf(disposition) === 'attachment' ||
    (!isFirst && (name !== '' || (isRelated && (contentId ?? location) !== null)));
  const type = declared ?? (isFile ? fallback : 'text/plain');
  return {
    part,
    role: isFile ? 'file' : type === 'text/html' ? 'html' : 'text',
    type,
    name,
    disposition: wordOf(disposition) || null,
    contentId,
    location,
    isRelated,
    encoding: encodingOf(part),
    charset: asciiParameter(part.type, 'charset'),
  };
}

/** The disposition, also of `attachment filename` without a semicolon; empty for `filename=x` without a word. */
const wordOf = ({ value }: ParameterizedValue): string => (/^(?:file)?name=/.test(value) ? '' : value);

/** Main types whose content is not text, also where the subtype is missing. */
const NO_TEXT = /^(?:application|audio|font|image|message|model|video)(?:\/|$)/;

interface Declared {
  /** Undefined if it is no media type. */
  readonly declared: string | undefined;
  /** Whether it may be the text: an invalid type counts as text (RFC 2045 section 5.2). */
  readonly isText: boolean;
  /** The type of a file that declares none. */
  readonly fallback: string;
}

function declaredType(part: Part): Declared {
  const type = mediaTypeOf(part);
  const fallback = /^text\b/.test(part.type.value) ? 'text/plain' : 'application/octet-stream';
  if (part.type.value === '' && type === 'text/plain') return { declared: undefined, isText: true, fallback };
  if (!isMediaType(type) || isMultipart(part)) return { declared: undefined, isText: !NO_TEXT.test(type), fallback };
  return { declared: type, isText: type === 'text/plain' || type === 'text/html', fallback };
}

/**
 * Beside a text, the first HTML part is its formatted form, together with others in the same alternative; any other
 * HTML part is a file. Without a text, all HTML parts are the message.
 */
function withOneHtml(leaves: readonly Leaf[]): Leaf[] {
  const first = leaves.find(({ role }) => role === 'html');
  if (!first || !leaves.some(({ role }) => role === 'text')) return [...leaves];
  const alternative = alternativeOf(first.part) ?? first.part;
  return leaves.map((leaf) =>
    leaf.role === 'html' && !isWithin(leaf.part, alternative) ? { ...leaf, role: 'file' } : leaf,
  );
}

/** The part of a multipart/alternative that contains a part. */
function alternativeOf(part: Part): Part | undefined {
  if (part.parent?.type.value === 'multipart/alternative') return part;
  return part.parent && alternativeOf(part.parent);
}

function isWithin(part: Part, whole: Part): boolean {
  return part === whole || (part.parent !== undefined && isWithin(part.parent, whole));
}

function contentIdOf(part: Part): string | null {
  return toContentId(firstValue(part.fields, 'content-id') ?? '');
}

/** An id without its brackets, which some software leaves out; null if there is none. */
function toContentId(written: string): string | null {
  const id = (/<([^<>]*)>/.exec(written)?.[1] ?? written.replace(/^<|>$/g, '')).trim();
  return id === '' ? null : id;
}
