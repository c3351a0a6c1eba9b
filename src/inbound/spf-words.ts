import type { SpfResult, Verdicts } from '../mail/envelope.ts';

/** Consumers compare these texts, so they stay as they are: the explanations of pyspf, which wrote the field first. */
const DETAILS: Readonly<Record<SpfResult, string>> = {
  pass: 'sender SPF authorized',
  fail: 'SPF fail - not authorized',
  softfail: 'domain owner discourages use of this host',
  neutral: 'access neither permitted nor denied',
  none: '',
  temperror: 'temporary DNS error in processing',
  permerror: 'permanent error in processing',
};

/** The SPF verdict of a result word, with its fixed text. */
export function spfVerdict(result: SpfResult): Verdicts['spf'] {
  return { result, detail: DETAILS[result] };
}

/** Reads a result word; one that RFC 7208 section 2.6 does not know is an error that will not go away. */
export function readSpfResult(word: string): SpfResult {
  switch (word) {
    case 'pass':
    case 'fail':
    case 'softfail':
    case 'neutral':
    case 'none':
    case 'temperror':
      return word;
    default:
      return 'permerror';
  }
}
