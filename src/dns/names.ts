import { domainToASCII } from 'node:url';

const LONGEST_NAME = 253; // 255 octets on the wire (RFC 1035 section 2.3.4)
const LONGEST_LABEL = 63;

/**
 * The form in which a name is asked: lower case, A-labels, no final dot.
 * Undefined for what cannot stand in the DNS (an empty or overlong label, an overlong name, a character outside ASCII
 * that IDNA refuses). SPF macros make names of unusual characters, so every printable one is let through.
 */
export function toQuestionName(name: string): string | undefined {
  const bare = name.endsWith('.') ? name.slice(0, -1) : name;
  if (bare.length > 4 * LONGEST_NAME || /[\x00-\x1f\x7f]/.test(bare)) return undefined; // a URL parser would drop a line end silently
  const ascii = /^[\x20-\x7e]*$/.test(bare) ? bare.toLowerCase() : domainToASCII(bare);
  if (ascii.length === 0 || ascii.length > LONGEST_NAME) return undefined;
  for (const label of ascii.split('.')) {
    if (label.length === 0 || label.length > LONGEST_LABEL) return undefined;
  }
  return ascii;
}

/** Whether two names are the same one, whatever their case, final dot or script. */
export function sameName(a: string, b: string): boolean {
  const name = toQuestionName(a);
  return name !== undefined && name === toQuestionName(b);
}

/** localhost and everything below it is this machine and is never asked for (RFC 6761 section 6.3). */
export function isLocalhost(name: string): boolean {
  return name === 'localhost' || name.endsWith('.localhost');
}
