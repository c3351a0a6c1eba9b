import { mkdir, writeFile } from 'node:fs/promises';
import { chromium } from '../support/chromium.ts';
import { DESK, PHONE } from '../support/console-page.ts';
import { type Story, tellStory } from '../support/console-story.ts';

const program = chromium();
const FOLDER = process.env['PICTURES'];
if (program !== undefined)
  describe('pictures', function () {
    this.timeout(600_000);
    let story: Story;
    before(async () => {
      story = await tellStory(program);
    });
    after(() => story?.stop());
    it('are made', async () => {
      await mkdir(FOLDER ?? '', { recursive: true });
      const { page } = story;
      for (const [name, path] of [
        ['now', '/'],
        ['mail', '/mail'],
        ['message', `/message/${story.retried}`],
      ] as const)
        for (const [size, of] of [
          ['desk', DESK],
          ['phone', PHONE],
        ] as const) {
          await page.open(path, of);
          await writeFile(`${FOLDER}/${name}-${size}.png`, await page.browser.screenshot());
        }
    });
  });
