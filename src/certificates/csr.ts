import { type KeyObject, sign, X509Certificate } from 'node:crypto';

// The few DER structures (ITU-T X.690) that ordering a certificate needs.

const SEQUENCE = 0x30;
const SET = 0x31;
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const OBJECT_ID = 0x06;
/** Context-specific tags: the attributes of a request, a DNS name among names, the key id of an issuer. */
const ATTRIBUTES = 0xa0;
const DNS_NAME = 0x82;
const KEY_ID = 0x80;

const ECDSA_WITH_SHA256 = '2a8648ce3d040302';
const EXTENSION_REQUEST = '2a864886f70d01090e';
const SUBJECT_ALT_NAME = '551d11';
const AUTHORITY_KEY_ID = '551d23';

/** A certificate request for one name (RFC 2986), signed with its P-256 key. DER. */
export function certificateRequest(name: string, keys: { publicKey: KeyObject; privateKey: KeyObject }): Buffer {
  const names = der(SEQUENCE, der(DNS_NAME, Buffer.from(name, 'ascii')));
  const extension = der(SEQUENCE, oid(SUBJECT_ALT_NAME), der(OCTET_STRING, names));
  const info = der(
    SEQUENCE,
    der(INTEGER, Buffer.of(0)),
    der(SEQUENCE),
    keys.publicKey.export({ type: 'spki', format: 'der' }),
    der(ATTRIBUTES, der(SEQUENCE, oid(EXTENSION_REQUEST), der(SET, der(SEQUENCE, extension)))),
  );
  const signature = sign('sha256', info, keys.privateKey);
  return der(SEQUENCE, info, der(SEQUENCE, oid(ECDSA_WITH_SHA256)), der(BIT_STRING, Buffer.of(0), signature));
}

/** How a CA names a certificate for renewal information (RFC 9773 section 4.1); undefined if it has no key id. */
export function renewalId(pem: string): string | undefined {
  const { raw, serialNumber } = new X509Certificate(pem);
  // The extension's value begins with its key id: OCTET STRING { SEQUENCE { [0] id, … } }.
  const at = raw.indexOf(oid(AUTHORITY_KEY_ID));
  if (at < 0) return undefined;
  const value = raw.subarray(at + 2 + AUTHORITY_KEY_ID.length / 2);
  if (value[0] !== OCTET_STRING || value[2] !== SEQUENCE || value[4] !== KEY_ID) return undefined;
  const id = value.subarray(6, 6 + (value[5] ?? 0));
  // The serial number as its DER integer: a leading zero if the first bit is set.
  const hex = serialNumber.length % 2 === 0 ? serialNumber : `0${serialNumber}`;
  const serial = Buffer.from(Number.parseInt(hex.slice(0, 2), 16) >= 0x80 ? `00${hex}` : hex, 'hex');
  return `${id.toString('base64url')}.${serial.toString('base64url')}`;
}

const oid = (hex: string): Buffer => der(OBJECT_ID, Buffer.from(hex, 'hex'));

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.of(tag, ...size), content]);
}
