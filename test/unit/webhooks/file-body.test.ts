import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createFileBody } from '../../../src/webhooks/post/file-body.ts';
import { tempDir } from '../../support/temp.ts';

describe('the file body of a post', () => {
  const large = randomBytes(1_000_001);

  async function chunksOf(sent: boolean): Promise<Uint8Array[]> {
    const path = join(await tempDir(), 'body');
    await writeFile(path, large);
    const chunks: Uint8Array[] = [];
    for await (const chunk of createFileBody({ path, size: large.length }, () => sent).chunks) chunks.push(chunk);
    return chunks;
  }

  it('does not overwrite unsent bytes', async () => {
    expect(Buffer.concat(await chunksOf(false)).equals(large)).to.equal(true);
  });

  it('is read into the same memory once all earlier bytes are sent', async () => {
    const chunks = await chunksOf(true);
    expect(chunks.length).to.be.greaterThan(1);
    expect(new Set(chunks.map(({ buffer }) => buffer)).size).to.equal(1);
  });
});
