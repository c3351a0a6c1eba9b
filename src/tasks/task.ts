/** Something that is done again and again: safe to run twice, to skip, and to be cut off. */
export interface Task {
  readonly name: string;
  /** When: five fields as in crontab, in UTC. */
  readonly schedule: string;
  /** Does it once and answers what the log should say of it; nothing when there was nothing to do. */
  run(): Promise<Readonly<Record<string, unknown>> | undefined>;
}
