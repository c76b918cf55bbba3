import { DraftList } from "../parts/draft/draft-list.tsx";

export const Page = () => <DraftList kind="campaign" />;
