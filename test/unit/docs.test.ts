import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { FORMAT_NAMES } from '../../src/inbound/formats.ts';
import { QUOTING } from '../support/quoting.ts';

const pages = [...globSync('docs/**/*.md'), ...globSync('src/**/README.md'), ...globSync('*.md')];
const allPages = [...new Set([...pages, ...globSync('{bench,config,scripts,src,systemd,test}/**/*.md')])];

describe('the docs', () => {
  it('name only files that exist', () => {
    const wrong = pages.flatMap((page) =>
      [...readFileSync(page, 'utf8').matchAll(/`([\w-]+(?:\/[\w.*-]+)*\.(?:ts|sh|yaml|md|service|socket))`/g)].flatMap(
        (found) => {
          const name = found[1] ?? '';
          const there =
            [name, join('src', name), join('systemd', name), join(dirname(page), name)].some(
              (path) => existsSync(path) || globSync(path).length > 0,
            ) || globSync(`src/**/${name}`).length > 0;
          return there ? [] : [`${page}: ${name}`];
        },
      ),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('name only tests, and other files of test/, that exist', () => {
    const named = /(?<![\w./*-])(?:(?:\.\.\/)*test\/(?:[\w-]+\/)*[\w.-]+\.ts|(?:[\w-]+\/)*[\w-][\w.-]*\.test\.ts)\b/g;
    const wrong = pages.flatMap((page) =>
      [...readFileSync(page, 'utf8').matchAll(named)]
        .filter(([name]) => globSync(`test/**/${name.replace(/^(?:\.\.\/)*(?:test\/)?/, '')}`).length === 0)
        .map(([name]) => `${page}: ${name}`),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('name only folders of the repository that exist', () => {
    const wrong = pages.flatMap((page) =>
      [...readFileSync(page, 'utf8').matchAll(/`((?:test|docs|config|scripts|bench|src)\/[\w./-]*\/)`/g)].flatMap(
        ([, name = '']) => (existsSync(name) ? [] : [`${page}: ${name}`]),
      ),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('have a README for each folder of src/, of at most a page, that says where to start reading', () => {
    const wrong = globSync('src/*/').filter((folder) => {
      const readme = join(folder, 'README.md');
      const text = existsSync(readme) ? readFileSync(readme, 'utf8') : '';
      return !/\bbegin with\b/i.test(text) || text.split('\n').length > 60;
    });
    expect(wrong).to.deep.equal([]);
  });

  it('have no dead links, neither to files nor to headings', () => {
    /** The names that GitHub gives to the headings of a page. */
    const headings = (page: string) => {
      const seen = new Map<string, number>();
      const text = readFileSync(page, 'utf8').replaceAll(/^```[^]*?^```$/gm, '');
      return [...text.matchAll(/^#{1,6} +(.+?) *$/gm)].map(([, title = '']) => {
        const plain = title.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
        const name = plain.replaceAll(/[^\p{L}\p{N}_\- ]/gu, '').replaceAll(' ', '-');
        const before = seen.get(name) ?? 0;
        seen.set(name, before + 1);
        return before === 0 ? name : `${name}-${before}`;
      });
    };
    const links = /(?:\]\(|\b(?:src|srcset|href)=")(?!https?:|mailto:)([^)"#]*)(?:#([^)"]*))?[)"]/g;
    const wrong = allPages.flatMap((page) =>
      [...readFileSync(page, 'utf8').matchAll(links)].flatMap(([link, path = '', heading]) => {
        const file = path === '' ? page : join(dirname(page), path);
        const there =
          existsSync(file) && (heading === undefined || !file.endsWith('.md') || headings(file).includes(heading));
        return there ? [] : [`${page}: ${link}`];
      }),
    );
    expect(wrong).to.deep.equal([]);
  });

  it('have no HTML outside of code but the picture of README, and no merge tags that markdown takes for emphasis', () => {
    const wrong = allPages.flatMap((page) => {
      const text = readFileSync(page, 'utf8').replaceAll(/^ *```[^]*?^ *```$|``.*?``|`[^`]*`|<!--[^]*?-->/gm, '');
      const tags = [...text.matchAll(/<(?!https?:|\/?(?:picture|source|img)\b)\/?[a-z][^>]*>|(?<!\\)\*\\?\|[A-Z]/gi)];
      return tags.map(([tag]) => `${page}: ${tag}`);
    });
    expect(wrong).to.deep.equal([]);
  });

  it('have figures in README that agree with the code and its tests', () => {
    const readme = readFileSync('README.md', 'utf8');
    expect(readme).to.contain(`${FORMAT_NAMES.length} payload formats`);
    expect(readme).to.contain(`${Object.keys(QUOTING).length} quoting styles`);
    const [, rate = '', times = ''] =
      /\*\*Fast\*\* \| ([\d,]+) messages a second .*: ([\d.]+) times Haraka/.exec(readme) ?? [];
    const proof = readFileSync('docs/proof.md', 'utf8');
    const [, measured = '', haraka = ''] =
      /^\| 5 kB, 50 connections \| ([\d,]+)\/s \|.* ([\d.]+) \(Haraka\)/m.exec(proof) ?? [];
    expect([rate, times]).to.deep.equal([measured, Number(haraka).toFixed(1)]);
    expect(readFileSync('bench/results.md', 'utf8')).to.contain(
      `| 5 kB, 50 connections | ${measured.replace(',', '')} `,
    );
    expect(readme.split('\n').length).to.be.at.most(121);
    expect(readme.match(/<img|!\[/g)).to.have.lengthOf(1);
  });

  it('say how to call a Standard Webhooks library wherever they recommend one: it takes a body for JSON', () => {
    const silent = pages.filter((page) => {
      const text = readFileSync(page, 'utf8');
      return (
        page !== 'CHANGELOG.md' &&
        /librar[^.]*Standard Webhooks|Standard Webhooks[^.]*librar|use\s+any of its libraries/i.test(text) &&
        !/jsonParse: false/.test(text)
      );
    });
    expect(silent).to.deep.equal([]);
  });

  it('read the journal so that lines without JSON, such as those of systemd, do no harm', () => {
    const reading = [...pages, 'config/grafana-dashboard.json'].flatMap((page) =>
      [...readFileSync(page, 'utf8').matchAll(/\bjq [^|`]*/g)].map(([command]) => command),
    );
    expect(reading.length).to.be.greaterThan(5);
    expect(reading.filter((command) => !/^jq -[cr]?R 'fromjson\? $/.test(command))).to.deep.equal([]);
  });
});
