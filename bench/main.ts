/** Measurements: `npm run bench -- <name> [options]` */
import { Command } from "commander";
import { wholeNumber, words } from "../app/options.ts";
import { type BenchReport, toText } from "./report.ts";

const program = new Command("bench")
  .description("Measures Mailkeel. Without --stack, a stack is brought up on free ports with data of its own.")
  .configureHelp({ showGlobalOptions: true })
  .option("--json", "print one JSON object")
  .showHelpAfterError("(add --help for the options)");

function show(report: BenchReport): void {
  console.log(program.opts<{ json?: boolean }>().json ? JSON.stringify(report) : toText(report));
  if (report.problems.length > 0) process.exitCode = 1;
}

const sizes = (list: string): number[] => words(list).map(wholeNumber(1));

const withStackOptions = (command: Command): Command =>
  command.option("--stack <file>", "the stack.json of a running stack, e.g. .data/stack.json");

withStackOptions(program.command("send"))
  .description("a newsletter from preview to the last mail: rates, CPU, memory, and whether all of it is right")
  .option("--recipients <list>", "sizes of the lists, one send each", sizes, [100_000])
  .option("--latency-ms <n>", "how long the SMTP server takes to answer a mail", wholeNumber(0), 0)
  .option("--connections <n>", "connections each sending account allows", wholeNumber(1, 1_000), 100)
  .option("--accounts <n>", "accounts that mail each send side by side", wholeNumber(1, 50), 1)
  .option("--repeat <n>", "sends of each size that are measured", wholeNumber(1), 1)
  .option("--previews <n>", "previews whose median is told", wholeNumber(1), 5)
  .option("--kill", "kill the dispatch worker at full speed, in the middle of each send", false)
  .option("--tracking", "send a body with links in turns without tracking and with it, and compare the rates", false)
  .option(
    "--consent",
    "in turns with tracking of all and of those who agreed, who are all, and compare the rates",
    false,
  )
  .option("--cpu-prof <folder>", "write a CPU profile of each process of the stack there")
  .action(async (options) => show(await (await import("./send.ts")).benchSend(options)));

withStackOptions(program.command("sequences"))
  .description("sequences: the way to a welcome mail, the rate to those who are due, the cost of those that wait")
  .option(
    "--seconds <n>",
    "for so long one person a second confirms a subscription; 0 leaves it out",
    wholeNumber(0),
    300,
  )
  .option("--due <n>", "people who are due at once; 0 leaves it out", wholeNumber(0), 100_000)
  .option("--enrolled <n>", "people in that sequence", wholeNumber(1), 1_000_000)
  .option("--idle <n>", "active sequences with nothing due; 0 leaves it out", wholeNumber(0), 1_000)
  .option("--idle-seconds <n>", "for so long their cost is measured", wholeNumber(1), 120)
  .action(async (options) => show(await (await import("./sequences.ts")).benchSequences(options)));

withStackOptions(program.command("preview"))
  .description("a preview over HTTP beside a bare update-with-start")
  .option("--recipients <n>", "size of the list", wholeNumber(1), 20)
  .option("--times <n>", "calls of each kind", wholeNumber(1), 30)
  .action(async (options) => show(await (await import("./preview.ts")).benchPreview(options)));

withStackOptions(program.command("ceilings"))
  .description("newsletters to very many recipients, previewed, confirmed and cancelled: how long each step takes")
  .option(
    "--recipients <n>",
    "size of the list; 10,000,000 take about 30 GB of disk",
    wholeNumber(1, 10_000_000),
    1_000_000,
  )
  .option("--repeat <n>", "newsletters to the same list, one after the other", wholeNumber(1), 1)
  .action(async (options) => show(await (await import("./ceilings.ts")).benchCeilings(options)));

withStackOptions(program.command("webhooks"))
  .description("webhooks from the commit of a change to its receipt: rates, latencies, CPU, and whether all arrived")
  .option("--events <n>", "events of a run", wholeNumber(1), 5_000)
  .option("--repeat <n>", "runs of each scenario", wholeNumber(1), 1)
  .option("--only <scenario...>", "some of the scenarios")
  .option("--cpu-prof <folder>", "write a CPU profile of each process of the stack there")
  .action(async (options) => show(await (await import("./webhooks.ts")).benchWebhooks(options)));

withStackOptions(program.command("hostile"))
  .description("an ordinary client beside hostile ones: its latencies and failures, and the memory of each process")
  .option("--seconds <n>", "how long each kind of load lasts", wholeNumber(1), 15)
  .option("--rows <n>", "subscribers of the hostile team", wholeNumber(1), 200_000)
  .action(async (options) => show(await (await import("./hostile.ts")).benchHostile(options)));

withStackOptions(program.command("neighbours"))
  .description("one team's requests beside each load of another team: latencies above the control, and failures")
  .option("--seconds <n>", "how long each load lasts", wholeNumber(1), 12)
  .option("--people <n>", "people of the team that loads the service", wholeNumber(1_000), 40_000)
  .option("--only <load...>", "some loads, by the beginnings of their names")
  .option("--cpu-prof <folder>", "write a CPU profile of each process of the stack there")
  .action(async (options) => show(await (await import("./neighbours.ts")).benchNeighbours(options)));

withStackOptions(program.command("api"))
  .description("requests of an API client beside a bare Express route that makes one query: rates, latencies, CPU")
  .option("--seconds <n>", "how long one run lasts", wholeNumber(1), 3)
  .option("--repeat <n>", "runs of each kind of request", wholeNumber(1), 3)
  .option("--clients <n>", "connections, each with one request at a time", wholeNumber(1), 16)
  .option("--rows <list>", "subscribers of the teams whose lists are read", sizes, [10, 100_000, 1_000_000])
  .option("--only <kind...>", "some kinds of requests, by their names in the table")
  .option("--cpu-prof <folder>", "write a CPU profile of each process of the stack there")
  .action(async (options) => show(await (await import("./api.ts")).benchApi(options)));

program
  .command("intake")
  .description("all that comes back: reports by mail, opens and clicks, and what tracking costs a send")
  .option("--reports <n>", "reports that come by mail", wholeNumber(5), 50_000)
  .option("--connections <n>", "connections that bring them", wholeNumber(1, 2_500), 40)
  .option("--seconds <n>", "how long each of the two measurements of opens and clicks lasts", wholeNumber(1), 10)
  .option("--per-second <n>", "hits a second of the steady pace", wholeNumber(1), 2_000)
  .option(
    "--outage-seconds <n>",
    "how long Postgres is away while opens and clicks come; 0 leaves it out",
    wholeNumber(0),
    0,
  )
  .option("--recipients <n>", "recipients of each send with tracking and without", wholeNumber(1), 50_000)
  .option("--repeat <n>", "pairs of such sends", wholeNumber(1), 3)
  .option("--cpu-prof <folder>", "write a CPU profile of each process of the stack there")
  .action(async (options) => show(await (await import("./intake.ts")).benchIntake(options)));

program
  .command("dkim")
  .description("mails over the SMTP pool to a sink, unsigned and signed by each kind of key")
  .option("--messages <n>", "mails of one run", wholeNumber(1), 20_000)
  .option("--repeat <n>", "runs of each", wholeNumber(1), 3)
  .option("--connections <n>", "connections allowed", wholeNumber(1), 100)
  .action(async (options) => show(await (await import("./dkim.ts")).benchDkim(options)));

program
  .command("blocks")
  .description("the check and the compiler of documents of blocks")
  .option("--repeat <n>", "runs of each", wholeNumber(1), 50)
  .action(async (options) => show((await import("./blocks.ts")).benchBlocks(options)));

withStackOptions(program.command("analytics"))
  .description("GET /analytics/overview of a team with many mails, opens, clicks and reports, and a recount of them")
  .option("--events <n>", "mails, opens, clicks and reports", wholeNumber(1), 10_000_000)
  .option("--newsletters <n>", "newsletters that they belong to, one a day", wholeNumber(1, 366), 366)
  .option("--seconds <n>", "how long one run lasts", wholeNumber(1), 20)
  .option("--per-second <n>", "requests that a run begins in a second", wholeNumber(1), 20)
  .action(async (options) => show(await (await import("./analytics.ts")).benchAnalytics(options)));

withStackOptions(program.command("console"))
  .description("what each page of the console asks for, of a team with many lists and people")
  .option("--lists <n>", "lists, newsletters, segments and templates", wholeNumber(1), 500)
  .option("--people <n>", "subscribers, and contacts", wholeNumber(1), 100_000)
  .option("--repeat <n>", "reads of each page", wholeNumber(1), 10)
  .action(async (options) => show(await (await import("./console.ts")).benchConsole(options)));

withStackOptions(program.command("people"))
  .description("search, list and page of people of a team with many, and what the search's indexes cost writes")
  .option("--people <n>", "people, of whom half are subscribers and contacts", wholeNumber(1_000), 1_000_000)
  .option("--repeat <n>", "times that each read is made", wholeNumber(1), 40)
  .option("--lines <n>", "lines of an import; 0 leaves all writes out", wholeNumber(0), 100_000)
  .option("--writes <n>", "requests that make a subscriber", wholeNumber(1), 500)
  .option("--sends <n>", "sends of the team, each to ten people", wholeNumber(0), 5_000)
  .action(async (options) => show(await (await import("./people.ts")).benchPeople(options)));

withStackOptions(program.command("retention"))
  .description("a send beside the pruning of old ledgers: its rate as a share of its rate alone, and how fast rows go")
  .option("--rows <n>", "rows of the old ledgers", wholeNumber(1), 20_000_000)
  .option("--recipients <n>", "recipients of each send that is measured", wholeNumber(1), 100_000)
  .option("--repeat <n>", "pairs of sends, alone and beside pruning, that count in each phase", wholeNumber(1), 4)
  .action(async (options) => show(await (await import("./retention.ts")).benchRetention(options)));

withStackOptions(program.command("migrations"))
  .description("how long writes wait for each migration since the latest release, on large tables")
  .option("--rows <n>", "rows of each table", wholeNumber(1), 10_000_000)
  .action(async (options) => show(await (await import("./migrations.ts")).benchMigrations(options)));

withStackOptions(program.command("import"))
  .description("a CSV file through the command line, the first time and again")
  .option("--lines <n>", "lines of the file", wholeNumber(1), 100_000)
  .option("--repeat <n>", "teams it is imported for", wholeNumber(1), 3)
  .action(async (options) => show(await (await import("./import.ts")).benchImport(options)));

withStackOptions(program.command("audience"))
  .description(
    "contacts, segments and campaigns: bulk calls, an import, counts, previews and confirms over many contacts",
  )
  .option("--only <scenario...>", "some of the scenarios: bulk, import, segments, campaign")
  .option(
    "--contacts <n>",
    "contacts that segments are counted over, and that campaigns mail",
    wholeNumber(1),
    1_000_000,
  )
  .option("--lines <n>", "lines of the import", wholeNumber(1), 100_000)
  .option("--calls <n>", "bulk calls", wholeNumber(1), 100)
  .option("--repeat <n>", "imports, counts of each segment, and previews of each campaign", wholeNumber(1), 3)
  .action(async (options) => show(await (await import("./audience-scenarios.ts")).benchAudience(options)));

program
  .command("start")
  .description("how long `npm start` takes on a new data folder and on an existing one")
  .option("--repeat <n>", "data folders", wholeNumber(1), 3)
  .action(async (options) => show(await (await import("./start.ts")).benchStart(options)));

await program.parseAsync();
process.exit();
