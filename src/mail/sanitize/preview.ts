// Outgoing mail is stored in parts, with merge tags. For its preview it becomes a MIME document, which is then handled
// like inbound mail: parsed on a thread, filtered, and shown in a frame.

/** A picture that HTML refers to by `cid:<name>`. */
export interface PreviewImage {
  readonly name: string;
  /** base64 */
  readonly content: string;
}

/** Does not occur in base64. */
const BOUNDARY = '--shown--';
/** Names that can stand in Content-ID. */
const NAME = /^[^\s<>]{1,255}$/;

/** A document with this HTML and its pictures. */
export function toPreviewMessage(html: string, images: readonly PreviewImage[]): Buffer {
  return Buffer.from(
    [
      'MIME-Version: 1.0',
      `Content-Type: multipart/related; boundary="${BOUNDARY}"`,
      '',
      `--${BOUNDARY}`,
      ...part('text/html; charset=utf-8', Buffer.from(html).toString('base64')),
      ...images
        .filter(({ name }) => NAME.test(name))
        .flatMap(({ name, content }) => [
          `--${BOUNDARY}`,
          `Content-ID: <${name}>`,
          // Its first bytes show whether it is a picture, whatever its declared type.
          ...part('application/octet-stream', content.replace(/[^A-Za-z0-9+/=]/g, '')),
        ]),
      `--${BOUNDARY}--`,
      '',
    ].join('\r\n'),
  );
}

const part = (type: string, base64: string) => [
  `Content-Type: ${type}`,
  'Content-Transfer-Encoding: base64',
  '',
  base64.replace(/.{76}/g, '$&\r\n'),
];
