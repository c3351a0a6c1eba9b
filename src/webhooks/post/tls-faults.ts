// Explains failed TLS handshakes with receivers: whose certificate it is, and what is wrong with it.

/** By the code of Node's error. */
const CAUSES: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'the certificate of the server has expired',
  CERT_NOT_YET_VALID: 'the certificate of the server is not valid yet',
  CERT_REVOKED: 'the certificate of the server was revoked',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'the certificate of the server is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'the certificate of the server is signed by an authority that this host does not trust',
  UNABLE_TO_GET_ISSUER_CERT: 'the certificate of the server has an unknown issuer',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'the certificate of the server has an unknown issuer',
  // By far most often the intermediate certificate is missing.
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    'the certificate of the server has an unknown issuer; the server must send the intermediate certificates too',
  CERT_SIGNATURE_FAILURE: 'the certificate of the server has a wrong signature',
  ERR_SSL_WRONG_VERSION_NUMBER: 'the server does not speak TLS on this port',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'the server does not speak TLS on this port',
  ERR_SSL_HTTP_REQUEST: 'the server does not speak TLS on this port',
  ERR_SSL_UNSUPPORTED_PROTOCOL: 'the server speaks only old versions of TLS',
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: 'the server speaks only old versions of TLS',
  ERR_SSL_TLSV1_UNRECOGNIZED_NAME: 'the server does not know this host name',
  ERR_SSL_TLSV1_ALERT_UNRECOGNIZED_NAME: 'the server does not know this host name',
  ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE: 'the server refused the handshake',
  ERR_SSL_SSL_TLS_ALERT_HANDSHAKE_FAILURE: 'the server refused the handshake',
  ERR_SSL_EE_KEY_TOO_SMALL: 'the certificate of the server has a key that is too short',
  ERR_SSL_DH_KEY_TOO_SMALL: 'the server uses a key that is too short',
  ECONNRESET: 'the server disconnected during the handshake',
  EPIPE: 'the server disconnected during the handshake',
  UND_ERR_SOCKET: 'the server disconnected during the handshake',
};
/** Names of a certificate that are shown. */
const NAMES = 3;

/** Returns the cause as text; undefined if the error has none here. `code` is that of the error. */
export function tlsCause(error: unknown, code: string): string | undefined {
  return code === 'ERR_TLS_CERT_ALTNAME_INVALID' ? otherName(error) : CAUSES[code];
}

function otherName(error: unknown): string {
  const names = namesOf(error);
  const host = stringOf(error, 'host');
  const of = names.length === 0 ? 'another name' : names.slice(0, NAMES).join(', ');
  const more = names.length > NAMES ? ` and ${names.length - NAMES} more` : '';
  return `the certificate of the server is for ${of}${more}${host === undefined ? '' : `, not for ${host}`}`;
}

/** The names in the certificate. It is untrusted text: only valid names and addresses are shown. */
function namesOf(error: unknown): readonly string[] {
  if (typeof error !== 'object' || error === null || !('cert' in error)) return [];
  const text = stringOf(error.cert, 'subjectaltname') ?? '';
  return text.split(/,\s*/).flatMap((entry) => /^(?:DNS|IP Address):([\w.*:-]{1,255})$/.exec(entry)?.[1] ?? []);
}

function stringOf(value: unknown, name: string): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const found: unknown = Reflect.get(value, name);
  return typeof found === 'string' ? found : undefined;
}
