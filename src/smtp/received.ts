// A header section beyond this is refused an examination: 50 Received lines need a tenth of it.
const MAX_EXAMINED = 256 * 1024;
const END_OF_HEADER = '\r\n\r\n';

/** Counts the Received lines of a message while it arrives, to find one that goes in a circle (RFC 5321 section 6.3). */
export interface ReceivedCount {
  see(bytes: Buffer): void;
  count(): number;
}

export function createReceivedCount(): ReceivedCount {
  // With an empty line before it every header line begins behind a line end, the first one too.
  let header = '\r\n';
  let complete = false;
  return Object.freeze({
    see(bytes: Buffer) {
      if (complete) return;
      const already = Math.max(0, header.length - END_OF_HEADER.length);
      const end = bytes.indexOf(END_OF_HEADER);
      // Up to the first empty line of this chunk is enough; one that lies across two chunks is found below.
      header += bytes.toString('latin1', 0, end < 0 ? bytes.length : end + END_OF_HEADER.length);
      complete = header.indexOf(END_OF_HEADER, already) >= 0 || header.length > MAX_EXAMINED;
    },
    count: () => header.slice(0, endOf(header)).match(/\r\nreceived[ \t]*:/gi)?.length ?? 0,
  });
}

function endOf(header: string): number {
  const end = header.indexOf(END_OF_HEADER);
  return end < 0 ? header.length : end;
}
